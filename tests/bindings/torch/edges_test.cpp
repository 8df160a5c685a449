// The modules where models are unusual: parameters without elements, in narrow types, frozen, on
// one rank; ranks that run out of data; layers that are called with what is not theirs.
#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

#include <numeric>

#include "bindings/torch/data_parallel.h"
#include "bindings/torch/fully_shard.h"
#include "bindings/torch/linear.h"
#include "bindings/torch/tensor_parallel.h"
#include "tests/support/thread_ranks.h"

namespace tutti::libtorch {
namespace {

using parallel::CommunicatorAxis;
using parallel::Policy;
using test::error_of;
using test::run_thread_ranks;
using testing::HasSubstr;

/// Rank r's loss is (r + 1) * sum(a) over parameters of these sizes, so the gradient of each
/// element is r + 1.
struct Sums : torch::nn::Module {
  explicit Sums(const std::vector<std::int64_t>& sizes, at::ScalarType type = at::kFloat) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      all.push_back(register_parameter("p" + std::to_string(i), at::ones({sizes[i]}, type)));
    }
  }
  Tensor forward(const Tensor& x) const {
    Tensor sum = at::zeros({}, all.empty() ? at::kFloat : all[0].options());
    for (const Tensor& p : all) sum = sum + p.sum();
    return sum * x.to(sum.scalar_type());
  }
  std::vector<Tensor> all;
};
Tensor factor(int rank) { return at::full({}, rank + 1, at::kFloat); }

TEST(TorchEdges, ParametersWithoutElementsDoNoHarm) {
  const std::vector<std::vector<std::int64_t>> units{{0, 5}, {0}, {}, {3, 0, 1}};
  for (const int ranks : {1, 3}) {
    run_thread_ranks(ranks, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      const float average = static_cast<float>(ranks + 1) / 2;
      Sums whole({0, 5, 0});
      DataParallel ddp(axis, whole);
      for (int step = 0; step < 2; ++step) {
        whole.zero_grad();
        ddp.backward(whole.forward(factor(comm.rank())));
        EXPECT_TRUE(at::equal(whole.all[1].grad(), at::full({5}, average)));
      }
      for (const Policy& policy :
           {Policy::zero1(), Policy::zero2(), Policy::zero3(), Policy::fsdp()}) {
        std::vector<std::unique_ptr<Sums>> modules;
        std::vector<FullyShard::Unit> declared;
        for (const auto& sizes : units) {
          modules.push_back(std::make_unique<Sums>(sizes));
          declared.push_back({"unit", modules.back().get()});
        }
        FullyShard shards({.shard = &axis}, declared, policy);
        for (int step = 0; step < 2; ++step) {
          Tensor sum = at::zeros({});
          for (std::size_t u = 0; u < units.size(); ++u) {
            sum = sum + shards.forward(
                            u, [&](const Tensor& x) { return modules[u]->forward(x); },
                            factor(comm.rank()));
          }
          shards.backward(sum);
          const auto shard = shards.engine().shard({3, 0});
          for (std::size_t i = 0; i < shard.count; ++i) {
            EXPECT_EQ(static_cast<const float*>(shard.gradient)[i], average);
          }
          EXPECT_NEAR(shards.engine().clip_gradients(1e9), average * 3, 1e-6);  // of 9 elements
          shards.engine().step(parallel::Sgd({.learning_rate = 0.5}));
        }
        shards.read_parameters([&](const NamedTensor& p) {
          EXPECT_TRUE(at::equal(p.tensor, at::full_like(p.tensor, 1 - average))) << p.tensor;
        });
      }
    });
  }
}

TEST(TorchEdges, ModulesInNarrowTypesAreAveraged) {
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16, at::kDouble}) {
    run_thread_ranks(3, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      for (const bool wide : {false, true}) {
        if (wide && type == at::kDouble) continue;
        Sums module({7, 2}, type);
        parallel::DataParallelPolicy policy;
        if (wide) policy.reduce_type = DataType::float32;
        DataParallel ddp(axis, module, policy);
        for (int step = 0; step < 2; ++step) {
          module.zero_grad();
          ddp.backward(module.forward(factor(comm.rank())));
          EXPECT_TRUE(at::equal(module.all[0].grad(), at::full({7}, 2, type)));
        }
      }
    });
  }
}

TEST(TorchEdges, RanksThatRunOutOfDataLeaveTheAverage) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Sums module({6});
    DataParallel ddp(axis, module, {.uneven_inputs = true});
    const auto update = [&] {
      const at::NoGradGuard no_grad;
      module.all[0] -= module.all[0].grad();
    };
    // Rank r has r steps: 0 + 1 + 2, so the averages are of 2 and of 1 rank.
    for (int step = 0; step < comm.rank(); ++step) {
      module.zero_grad();
      ddp.backward(module.forward(factor(comm.rank())));
      update();
    }
    ddp.join(update);
    EXPECT_TRUE(at::equal(module.all[0], at::full({6}, 1 - 2.5f - 3.f))) << module.all[0];
  });
}

TEST(TorchEdges, LayersRefuseWhatIsNotTheirs) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ColumnParallelLinear up(axis, "up", 4, 6);
    RowParallelLinear down(axis, "down", 6, 4);
    VocabParallelCrossEntropy loss(axis, "loss", 8);
    const auto why = [](const auto& call) {
      const Error e = error_of(call);
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      return std::string(e.what());
    };
    EXPECT_THAT(why([&] {
                  up.forward(at::ones({3, 4}, at::kDouble));
                }),
                HasSubstr("up takes float32 [rows, 4], on the CPU, not float64 [3, 4]"));
    EXPECT_THAT(why([&] { down.forward(at::ones({3, 6})); }), HasSubstr("not float32 [3, 6]"));
    EXPECT_THAT(why([&] {
                  down.forward(at::ones({3, 3}, at::kBFloat16));
                }),
                HasSubstr("not bfloat16 [3, 3]"));
    const Tensor targets = at::zeros({3}, at::kLong);
    EXPECT_THAT(why([&] {
                  loss.forward(at::ones({3, 8}), targets);
                }),
                HasSubstr("cross entropy 'loss' takes float32 [rows, 4]"));
    EXPECT_THAT(why([&] {
                  loss.forward(at::ones({3, 4}, at::kHalf), targets);
                }),
                HasSubstr("not float16 [3, 4]"));
    EXPECT_THAT(why([&] {
                  loss.forward(at::ones({2, 4}), targets);
                }),
                HasSubstr("as many targets as logits have rows, 2, on the CPU, not int64 [3]"));
    EXPECT_THAT(why([&] { up.forward({}); }), HasSubstr("not no tensor"));
    VocabParallelEmbedding embedding(axis, "tokens", 8, 4);
    EXPECT_THAT(why([&] { embedding.forward(at::zeros({3})); }),
                HasSubstr("tokens takes tokens as int64 or int32, on the CPU, not float32 [3]"));
    EXPECT_THAT(why([&] {
                  loss.forward(at::ones({3, 4}), at::zeros({3}));
                }),
                HasSubstr("cross entropy 'loss' takes tokens as int64 or int32"));
    up.to(at::kBFloat16);
    EXPECT_THAT(why([&] {
                  up.forward(at::ones({3, 4}, at::kBFloat16));
                }),
                HasSubstr("a weight of float32, as it was made"));
  });
}

TEST(TorchEdges, TokensMayHaveThirtyTwoBits) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    VocabParallelEmbedding embedding(axis, "tokens", 8, 4);
    VocabParallelCrossEntropy loss(axis, "loss", 8);
    {
      const at::NoGradGuard no_grad;
      embedding.weight.copy_((at::arange(16, at::kFloat) + 16 * comm.rank()).view({4, 4}) / 10);
    }
    const Tensor ids = at::arange(6, at::kLong).view({2, 3});
    EXPECT_TRUE(at::equal(embedding.forward(ids), embedding.forward(ids.to(at::kInt))));
    const auto gradient = [&](at::ScalarType type) {
      embedding.weight.mutable_grad().reset();
      const Tensor logits = at::linear(embedding.forward(ids.to(type)), embedding.weight.detach());
      loss.forward(logits, ids.flatten().to(type)).backward();
      return embedding.weight.grad().clone();
    };
    EXPECT_TRUE(at::equal(gradient(at::kLong), gradient(at::kInt)));
  });
}

TEST(TorchEdges, LayersSayThatTheirParametersAreInShards) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Communicator alone = comm.split(comm.rank(), 0);
    CommunicatorAxis self(alone);
    Linear plain(4, 4);
    ColumnParallelLinear up(self, "up", 4, 4);
    RowParallelLinear down(self, "down", 4, 4);
    VocabParallelEmbedding embedding(self, "tokens", 8, 4);
    FullyShard shards({.shard = &axis},
                      {{"plain", &plain}, {"up", &up}, {"down", &down}, {"tokens", &embedding}});
    const auto why = [](const auto& call) {
      const Error e = error_of(call);
      EXPECT_EQ(e.code(), ErrorCode::invalid_usage) << e.what();
      return std::string(e.what());
    };
    const Tensor x = at::ones({3, 4});
    EXPECT_THAT(why([&] { plain.forward(x); }),
                HasSubstr("a linear layer has no parameters now: the parameter"));
    EXPECT_THAT(why([&] { up.forward(x); }), HasSubstr("up has no parameters now"));
    EXPECT_THAT(why([&] { down.forward(x); }), HasSubstr("down has no parameters now"));
    EXPECT_THAT(why([&] { embedding.forward(at::zeros({3}, at::kLong)); }),
                HasSubstr("tokens has no parameters now"));
  });
}

/// Whole numbers, so that sums are exact.
Tensor numbers(at::IntArrayRef sizes, int seed) {
  std::int64_t count = 1;
  for (const std::int64_t size : sizes) count *= size;
  return ((at::arange(count, at::kFloat) * 7 + seed) % 5 - 2).view(sizes);
}

// Shards of layers that ranks share: of four ranks, each two have a layer's halves, in bfloat16
// with a master of float32.
TEST(TorchEdges, SharedLayersTrainInMixedPrecision) {
  const Tensor w = numbers({6, 4}, 1).requires_grad_();
  for (const int data : {0, 1}) at::linear(numbers({3, 4}, data), w).square().sum().backward();
  run_thread_ranks(4, [&](Communicator& comm) {
    Communicator tp = comm.split(comm.rank() / 2, comm.rank()),
                 dp = comm.split(comm.rank() % 2, comm.rank());
    CommunicatorAxis tensor(tp), data(dp);
    ColumnParallelLinear layer(tensor, "up", 4, 6, at::kBFloat16);
    {
      const at::NoGradGuard no_grad;
      layer.weight.copy_(w.chunk(2)[static_cast<std::size_t>(tp.rank())]);
      layer.bias.zero_();
    }
    FullyShard shards({.shard = &data}, {{"layer", &layer}},
                      Policy::fsdp(parallel::Precision::mixed()));
    shards.backward(shards.forward(
        0, [&](const Tensor& x) { return layer.forward(x).to(at::kFloat).square().sum(); },
        numbers({3, 4}, dp.rank()).to(at::kBFloat16)));
    shards.engine().step(parallel::Sgd({.learning_rate = 1.0 / 4096}));
    const auto shard = shards.engine().shard({0, 0});
    const Tensor expected =
        (w - w.grad() / 2 / 4096).detach().chunk(2)[static_cast<std::size_t>(tp.rank())].flatten();
    ASSERT_GT(shard.count, 0u);
    for (std::size_t i = 0; i < shard.count; ++i) {
      EXPECT_EQ(static_cast<const float*>(shard.master)[i],
                expected[static_cast<std::int64_t>(shard.begin + i)].item<float>());
    }
  });
}

TEST(TorchEdges, LinearComputesInAutocastsType) {
  run_thread_ranks(1, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    struct One : torch::nn::Module {
      One() { register_module("linear", linear); }
      std::shared_ptr<Linear> linear = std::make_shared<Linear>(4, 3);
    } module;
    DataParallel ddp(axis, module);
    Tensor expected;
    for (const bool ours : {false, true}) {
      at::autocast::set_autocast_enabled(at::kCPU, true);
      const Tensor x = numbers({5, 4}, 2);
      const Tensor w = module.linear->weight;
      const Tensor y = ours ? module.linear->forward(x) : at::linear(x, w, module.linear->bias);
      at::autocast::set_autocast_enabled(at::kCPU, false);
      at::autocast::clear_cache();
      EXPECT_EQ(y.scalar_type(), at::kBFloat16);
      module.zero_grad();
      ddp.backward(y.to(at::kFloat).square().sum());
      if (!ours) expected = w.grad().clone();
      EXPECT_TRUE(at::equal(w.grad(), expected));
    }
  });
}

// As two towers with the same parameters do; their inputs are data, which need no gradients.
TEST(TorchEdges, AUnitIsUsedTwiceInAStep) {
  for (const bool input_needs_gradient : {false, true}) {
    run_thread_ranks(2, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      Sums module({4, 4});
      FullyShard shards({.shard = &axis}, {{"module", &module}});
      const auto use = [&](float factor_of_it) {
        const Tensor x = at::full({1}, factor_of_it).requires_grad_(input_needs_gradient);
        return shards.forward(
            0, [&](const Tensor& t) { return module.forward(t); }, x);
      };
      for (int step = 0; step < 2; ++step) {
        const Tensor one = use(1), two = use(static_cast<float>(2 + 2 * comm.rank()));
        shards.backward(one + two);
        EXPECT_EQ(*static_cast<const float*>(shards.engine().shard({0, 0}).gradient), 4.f);
        shards.engine().discard_gradients();
      }
    });
  }
}

TEST(TorchEdges, FrozenParametersStayAsTheyAre) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Sums module({4, 4});
    module.all[0].set_requires_grad(false);
    FullyShard shards({.shard = &axis}, {{"module", &module}});
    EXPECT_EQ(module.all[0].numel(), 4);
    EXPECT_THROW((void)module.all[1].sum(), c10::Error);
    shards.backward(shards.forward(
        0, [&](const Tensor& x) { return module.forward(x); }, factor(comm.rank())));
    EXPECT_EQ(*static_cast<const float*>(shards.engine().shard({0, 0}).gradient), 1.5f);
  });
}

}  // namespace
}  // namespace tutti::libtorch
