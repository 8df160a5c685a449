// Where gradients are made, and when: in the engines' memory (Linear), in narrow types, and in a
// part of a backward of their own.
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/torch/data_parallel.h"
#include "bindings/torch/fully_shard.h"
#include "bindings/torch/linear.h"
#include "bindings/torch/pipeline.h"
#include "parallel/pipeline/generate.h"
#include "tests/bindings/torch/small_modules.h"
#include "tests/support/thread_ranks.h"

namespace tutti::libtorch {
namespace {

using parallel::CommunicatorAxis;
using parallel::Policy;
using test::run_thread_ranks;

/// Whole numbers, so that sums are exact: rank r's input, and a module's weights.
Tensor numbers(at::IntArrayRef sizes, int seed, at::ScalarType type = at::kFloat) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return ((at::arange(count, at::kFloat) * 7 + seed) % 5 - 2).view(sizes).to(type);
}

struct Module : torch::nn::Module {
  Module() : linear(std::make_shared<Linear>(4, 4)) {
    const at::NoGradGuard no_grad;
    register_module("linear", linear);
    linear->weight.copy_(numbers({4, 4}, 1));
    linear->bias.copy_(numbers({4}, 3));
  }
  /// The layer twice, so that its parameters have two gradients; or once.
  Tensor forward(const Tensor& x, bool twice) const {
    const Tensor y = linear->forward(x);
    return (twice ? linear->forward(y) : y).square().sum();
  }
  std::shared_ptr<Linear> linear;
};

/// Of torch's own layer, on all of the ranks' inputs: sums over them.
std::pair<Tensor, Tensor> expected(int ranks, bool twice, int micro_batches) {
  const Module module;
  const Tensor w = module.linear->weight.detach().clone().requires_grad_();
  const Tensor b = module.linear->bias.detach().clone().requires_grad_();
  for (int rank = 0; rank < ranks; ++rank) {
    for (int m = 0; m < micro_batches; ++m) {
      Tensor y = at::linear(numbers({3, 4}, rank + 10 * m), w, b);
      if (twice) y = at::linear(y, w, b);
      y.square().sum().backward();
    }
  }
  return {w.grad(), b.grad()};
}

TEST(TorchLinear, MakesGradientsInBuckets) {
  for (const bool twice : {false, true}) {
    for (const int micro_batches : {1, 3}) {
      const auto [weight, bias] = expected(2, twice, micro_batches);
      run_thread_ranks(2, [&](Communicator& comm) {
        CommunicatorAxis axis(comm);
        Module module;
        DataParallel ddp(axis, module);
        for (int step = 0; step < 3; ++step) {
          module.zero_grad();
          for (int m = 0; m < micro_batches; ++m) {
            std::optional<parallel::DataParallel::NoSync> no_sync;
            if (m + 1 < micro_batches) no_sync.emplace(ddp.engine());
            ddp.backward(module.forward(numbers({3, 4}, comm.rank() + 10 * m), twice));
          }
          EXPECT_TRUE(at::equal(module.linear->weight.grad(), weight / 2)) << twice;
          EXPECT_TRUE(at::equal(module.linear->bias.grad(), bias / 2)) << twice;
        }
      });
    }
  }
}

// A user's own way to average, as a policy's: here in units of 1/8, as whole numbers.
TEST(TorchDataParallel, AveragesByTheUsersOwnReduction) {
  struct Eighths final : parallel::Reduction {
    void bind(const parallel::BucketLayout& layout, std::byte* gradients) override {
      Reduction::bind(layout, gradients);
      sent.resize(layout.buckets.size());
    }
    Call prepare(std::size_t b, int) override {
      const Tensor gradients = tensor_of(b);
      sent[b] = (gradients * 8).to(at::kInt);
      return parallel::call_of(Collective::all_reduce, sent[b].const_data_ptr(),
                               sent[b].mutable_data_ptr(), bucket(b).count, DataType::int32);
    }
    void complete(std::size_t b) override { tensor_of(b).copy_(sent[b].to(at::kFloat) / 16); }
    Tensor tensor_of(std::size_t b) const {
      return tensor_over(data(b), {static_cast<std::int64_t>(bucket(b).count)}, at::kFloat);
    }
    std::vector<Tensor> sent;
  };
  const auto [weight, bias] = expected(2, false, 1);
  run_thread_ranks(2, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Module module;
    parallel::DataParallelPolicy policy;
    policy.reduction =
        parallel::OwnReduction{"eighths", [](auto, auto&) -> std::unique_ptr<parallel::Reduction> {
                                 return std::make_unique<Eighths>();
                               }};
    DataParallel ddp(axis, module, policy);
    for (int step = 0; step < 2; ++step) {
      module.zero_grad();
      ddp.backward(module.forward(numbers({3, 4}, comm.rank()), false));
      EXPECT_TRUE(at::equal(module.linear->weight.grad(), weight / 2));
      EXPECT_TRUE(at::equal(module.linear->bias.grad(), bias / 2));
    }
  });
}

// Small gradients beside a large one are lost in 8 bits, and come later with error feedback.
TEST(TorchDataParallel, AveragesIn8Bits) {
  for (const bool error_feedback : {false, true}) {
    run_thread_ranks(2, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      Two module;
      parallel::DataParallelPolicy policy;
      policy.eight_bits = parallel::EightBits{.error_feedback = error_feedback};
      DataParallel ddp(axis, module, policy);
      // d/da = x b. Both ranks have the same, so compressing the average changes nothing more.
      const Tensor x = at::tensor({1024.0F, 1.0F, 1.0F, 1.0F});
      constexpr int kSteps = 100;
      Tensor sum = at::zeros({4});
      for (int step = 0; step < kSteps; ++step) {
        module.zero_grad();
        ddp.backward(module.forward(x));
        sum += module.a.grad();
      }
      const std::vector<float> exact{10240, 11, 12, 13};
      for (std::int64_t i = 0; i < 4; ++i) {
        const float expected = i == 0 || error_feedback ? exact[static_cast<std::size_t>(i)] : 0;
        EXPECT_NEAR(sum[i].item<float>() / kSteps, expected, i == 0 ? 0.0F : 128.0F / kSteps)
            << i << error_feedback;
      }
    });
  }
}

/// How often torch copies, or adds, as many numbers as the weight has, while `body` runs.
int passes_over_weights(const std::function<void()>& body) {
  static thread_local int passes = 0;
  passes = 0;
  const auto handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback([](const at::RecordFunction& f)
                                     -> std::unique_ptr<at::ObserverContext> {
        const std::string name = f.name();
        if (name != "aten::copy_" && name != "aten::add_") return nullptr;
        passes += f.inputs()[0].toTensor().numel() == 4 * 4 ? 1 : 0;
        return nullptr;
      }).needsInputs(true));
  body();
  at::removeCallback(handle);
  return passes;
}

/// The module with torch's layer, so that gradients are copied.
Tensor by_torch(const Module& module, const Tensor& x) {
  return at::linear(x, module.linear->weight, module.linear->bias).square().sum();
}

// (As long as buckets stay where they are: after a first step they are laid out anew.)
TEST(TorchLinear, NeedsNoCopyToBuckets) {
  run_thread_ranks(1, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    for (const bool ours : {false, true}) {
      Module module;
      DataParallel ddp(axis, module, {.learn_order = false});
      for (int m = 0; m < 2; ++m) {
        std::optional<parallel::DataParallel::NoSync> no_sync;
        if (m == 0) no_sync.emplace(ddp.engine());
        const Tensor x = numbers({3, 4}, m);
        const Tensor loss = ours ? module.forward(x, false) : by_torch(module, x);
        EXPECT_EQ(passes_over_weights([&] { ddp.backward(loss); }), ours ? 0 : 1);
        EXPECT_EQ(module.linear->weight.grad().const_data_ptr(), ddp.engine().gradient(0));
      }
    }
  });
}

TEST(TorchLinear, NeedsNoCopyToUnits) {
  for (const auto& policy : {Policy::zero1(), Policy::zero2(), Policy::fsdp()}) {
    run_thread_ranks(1, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      for (const bool ours : {false, true}) {
        Module module;
        FullyShard shards({.shard = &axis}, {{"module", &module}}, policy);
        for (int m = 0; m < 2; ++m) {
          shards.synchronise(m == 1);
          const Tensor loss = shards.forward(
              0,
              [&](const Tensor& x) {
                return ours ? module.forward(x, false) : by_torch(module, x);
              },
              numbers({3, 4}, m));
          EXPECT_EQ(passes_over_weights([&] { shards.backward(loss); }), ours ? 0 : 1);
        }
      }
    });
  }
}

TEST(TorchLinear, MakesGradientsInShards) {
  for (const auto& policy : {Policy::zero1(), Policy::zero2(), Policy::fsdp()}) {
    for (const bool twice : {false, true}) {
      for (const int micro_batches : {1, 2}) {
        const auto [weight, bias] = expected(2, twice, micro_batches);
        run_thread_ranks(2, [&](Communicator& comm) {
          CommunicatorAxis axis(comm);
          Module module;
          FullyShard shards({.shard = &axis}, {{"module", &module}}, policy);
          for (int step = 0; step < 2; ++step) {
            for (int m = 0; m < micro_batches; ++m) {
              const bool last = m + 1 == micro_batches;
              shards.synchronise(last);
              const Tensor loss = shards.forward(
                  0, [&](const Tensor& x) { return module.forward(x, twice); },
                  numbers({3, 4}, comm.rank() + 10 * m));
              shards.backward(loss);
            }
            const Tensor flat[] = {(weight / 2).flatten(), (bias / 2).flatten()};
            for (const std::size_t p : {0u, 1u}) {
              const auto shard = shards.engine().shard({0, p});
              for (std::size_t i = 0; i < shard.count; ++i) {
                EXPECT_EQ(static_cast<const float*>(shard.gradient)[i],
                          flat[p][static_cast<std::int64_t>(shard.begin + i)].item<float>());
              }
            }
            shards.engine().discard_gradients();
          }
        });
      }
    }
  }
}

// float32 masters and state, bfloat16 where they are computed with and travel: exact here, as all
// numbers are small and whole.
TEST(TorchMixedPrecision, ComputesNarrowAndKeepsWide) {
  for (const bool wide_sums : {false, true}) {
    const auto [weight, bias] = expected(2, false, 1);
    run_thread_ranks(2, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      Module module;
      Policy policy = Policy::zero3(parallel::Precision::mixed());
      policy.alignment = 4;  // or rank 1 has no part of so small a matrix
      if (wide_sums) policy.precision.gradient = policy.precision.reduce = DataType::float32;
      FullyShard shards({.shard = &axis}, {{"module", &module}}, policy);
      const Tensor loss = shards.forward(
          0,
          [&](const Tensor& x) {
            EXPECT_EQ(module.linear->weight.scalar_type(), at::kBFloat16);
            return module.forward(x, false);
          },
          numbers({3, 4}, comm.rank(), at::kBFloat16));
      shards.backward(loss);
      const auto shard = shards.engine().shard({0, 0});
      ASSERT_GT(shard.count, 0u);
      const Tensor flat = weight.flatten() / 2;
      for (std::size_t i = 0; i < shard.count; ++i) {
        const auto at = static_cast<std::int64_t>(shard.begin + i);
        const float got =
            wide_sums ? static_cast<const float*>(shard.gradient)[i]
                      : static_cast<float>(static_cast<const c10::BFloat16*>(shard.gradient)[i]);
        EXPECT_EQ(got, flat[at].item<float>());
      }
      // A step that bfloat16 could not see: 2^-12 of what there is.
      const float before = static_cast<const float*>(shard.master)[0];
      const float gradient = flat[static_cast<std::int64_t>(shard.begin)].item<float>();
      shards.engine().step(parallel::Sgd({.learning_rate = 1.0 / 4096}));
      EXPECT_EQ(static_cast<const float*>(shards.engine().shard({0, 0}).master)[0],
                before - gradient / 4096);
      shards.read_parameters([&](const NamedTensor& p) {
        EXPECT_EQ(p.tensor.scalar_type(), at::kBFloat16) << p.name;
      });
    });
  }
}

TEST(TorchMixedPrecision, GivesBuffersTheirType) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    struct Counted : Module {
      Tensor mean = register_buffer("mean", numbers({4}, 2));
      Tensor count = register_buffer("count", at::ones({1}, at::kLong));
    };
    for (const bool narrow : {false, true}) {
      Counted module;
      Policy policy = Policy::fsdp(parallel::Precision::mixed());
      if (narrow) policy.precision.buffer = DataType::bfloat16;
      const FullyShard shards({.shard = &axis}, {{"module", &module}}, policy);
      EXPECT_EQ(module.mean.scalar_type(), narrow ? at::kBFloat16 : at::kFloat);
      EXPECT_TRUE(at::equal(module.mean.to(at::kFloat), numbers({4}, 2)));
      EXPECT_TRUE(module.named_buffers()["mean"].is_same(module.mean));
      EXPECT_EQ(module.count.scalar_type(), at::kLong);
    }
  });
}

TEST(TorchPipeline, MakesWeightsGradientsInTheirOwnPart) {
  run_thread_ranks(1, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Module module;
    const Tensor& weight = module.linear->weight;
    const auto schedule =
        parallel::pipeline::generate(*parallel::pipeline::find_generator("zb-h1"), {1, 1, 0});
    int inputs = 0, weights = 0;
    Pipeline pipeline(axis, schedule, {.shape = {3, 4}},
                      {.forward =
                           [&](int, int, const Tensor&) {
                             return module.forward(numbers({3, 4}, 0), true);
                           },
                       .before_backward = {},
                       .after_backward =
                           [&](int, bool last) {
                             ++inputs;
                             EXPECT_EQ(last, schedule.actions[0].size() == 2);
                             EXPECT_TRUE(last || !weight.grad().defined());
                           },
                       .backward_weights =
                           [&](int, bool last, const std::function<void()>& make) {
                             ++weights;
                             EXPECT_TRUE(last);
                             make();
                             EXPECT_TRUE(weight.grad().defined());
                           }});
    (void)pipeline.step();
    EXPECT_EQ(inputs, 1);
    EXPECT_EQ(weights, schedule.actions[0].size() == 2 ? 0 : 1);
    const auto [w, b] = expected(1, true, 1);
    EXPECT_TRUE(at::equal(weight.grad(), w));
    EXPECT_TRUE(at::equal(module.linear->bias.grad(), b));
  });
}

}  // namespace
}  // namespace tutti::libtorch
