// What a program may do because torch's own modules let it: hooks on parameters, whenever they were
// registered; gradients of some tensors alone; graphs and gradients that outlive what made them;
// changes in place.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
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
#include "bindings/torch/tensor_parallel.h"
#include "parallel/pipeline/generate.h"
#include "tests/thread_ranks.h"
#include "tests/torch/whole_numbers.h"

namespace tutti::libtorch {
namespace {

using parallel::CommunicatorAxis;
using parallel::Policy;
using test::run_thread_ranks;
using test::whole_numbers;

constexpr int kMicroBatches = 2;

/// One layer, of torch's or of ours.
struct Layered : torch::nn::Module {
  explicit Layered(bool ours) {
    const at::NoGradGuard no_grad;
    if (ours) {
      linear = std::make_shared<Linear>(4, 4);
      register_module("linear", linear);
      weight = linear->weight;
      bias = linear->bias;
    } else {
      weight = register_parameter("weight", at::empty({4, 4}));
      bias = register_parameter("bias", at::empty({4}));
    }
    weight.copy_(whole_numbers({4, 4}, 1));
    bias.copy_(whole_numbers({4}, 2));
  }
  Tensor forward(const Tensor& x) const {
    return (linear ? linear->forward(x) : at::linear(x, weight, bias)).square().sum();
  }
  std::shared_ptr<Linear> linear;
  Tensor weight, bias;
};

Tensor batch(int rank, int micro_batch) { return whole_numbers({3, 4}, rank + 3 * micro_batch); }

/// Of the weight, over all ranks and micro-batches.
Tensor sum_of_gradients(int ranks) {
  const Layered module(false);
  for (int r = 0; r < ranks; ++r) {
    for (int m = 0; m < kMicroBatches; ++m) module.forward(batch(r, m)).backward();
  }
  return module.weight.grad();
}

/// A module in an engine, which trains it; `gradient()` is that of the weight, on this rank.
struct Trained {
  virtual ~Trained() = default;
  virtual void step(int rank) = 0;
  virtual void expect(const Tensor& weight, const std::string& what) = 0;
};
struct TrainedWhole final : Trained {
  TrainedWhole(parallel::Axis& axis, Layered& module) : layered(module), ddp(axis, module) {}
  void step(int rank) override {
    layered.zero_grad();
    for (int m = 0; m < kMicroBatches; ++m) {
      std::optional<parallel::DataParallel::NoSync> no_sync;
      if (m + 1 < kMicroBatches) no_sync.emplace(ddp.engine());
      ddp.backward(layered.forward(batch(rank, m)));
    }
  }
  void expect(const Tensor& weight, const std::string& what) override {
    EXPECT_TRUE(at::equal(layered.weight.grad(), weight)) << what << layered.weight.grad();
  }
  Layered& layered;
  DataParallel ddp;
};
struct TrainedInShards final : Trained {
  TrainedInShards(parallel::Axis& axis, Layered& module, const Policy& policy)
      : layered(module), shards({.shard = &axis}, {{"module", &module}}, policy) {}
  void step(int rank) override {
    shards.engine().discard_gradients();
    for (int m = 0; m < kMicroBatches; ++m) {
      shards.synchronise(m + 1 == kMicroBatches);
      shards.backward(shards.forward(
          0, [&](const Tensor& x) { return layered.forward(x); }, batch(rank, m)));
    }
  }
  void expect(const Tensor& weight, const std::string& what) override {
    const auto shard = shards.engine().shard({0, 0});
    for (std::size_t i = 0; i < shard.count; ++i) {
      EXPECT_EQ(static_cast<const float*>(shard.gradient)[i],
                weight.flatten()[static_cast<std::int64_t>(shard.begin + i)].item<float>())
          << what << ", element " << shard.begin + i;
    }
  }
  Layered& layered;
  FullyShard shards;
};

std::unique_ptr<Trained> trained(const std::string& engine, parallel::Axis& axis, Layered& module) {
  if (engine == "data parallel") return std::make_unique<TrainedWhole>(axis, module);
  const Policy policy = engine == "zero1"   ? Policy::zero1()
                        : engine == "zero2" ? Policy::zero2()
                                            : Policy::fsdp();
  return std::make_unique<TrainedInShards>(axis, module, policy);
}

TEST(TorchHooks, ChangeWhatIsReducedWheneverTheyAreRegistered) {
  const Tensor sum = sum_of_gradients(2);
  run_thread_ranks(2, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    for (const std::string engine : {"data parallel", "zero1", "zero2", "fsdp"}) {
      for (const bool ours : {false, true}) {
        for (const bool before : {false, true}) {
          Layered module(ours);
          int calls = 0;
          unsigned hook = 0;
          const auto add_hook = [&] {
            hook = module.weight.register_hook([&](const Tensor& g) {
              ++calls;
              return g * 4;
            });
          };
          if (before) add_hook();
          const auto model = trained(engine, axis, module);
          if (!before) add_hook();
          const std::string what =
              engine + (ours ? ", ours" : ", torch's") + (before ? ", before" : ", after");
          for (int step = 1; step <= 2; ++step) {
            model->step(comm.rank());
            model->expect(sum * 2, what);
            EXPECT_EQ(calls, step * kMicroBatches) << what;
          }
          module.weight.remove_hook(hook);
          model->step(comm.rank());
          model->expect(sum / 2, what + ", removed");
        }
      }
    }
  });
}

// What a hook keeps is that gradient, and not memory in which the next one is made.
TEST(TorchHooks, KeepTheGradientsThatTheySaw) {
  run_thread_ranks(1, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    for (const std::string engine : {"data parallel", "fsdp"}) {
      Layered module(true), alone(false);
      std::vector<Tensor> seen;
      module.weight.register_hook([&](const Tensor& g) {
        seen.push_back(g);
        return Tensor();
      });
      trained(engine, axis, module)->step(0);
      ASSERT_EQ(seen.size(), 2u);
      for (int m = 0; m < kMicroBatches; ++m) {
        alone.zero_grad();
        alone.forward(batch(0, m)).backward();
        EXPECT_TRUE(at::equal(seen[static_cast<std::size_t>(m)], alone.weight.grad())) << engine;
      }
    }
  });
}

// In the part of a backward to which they belong, with a gradient.
TEST(TorchHooks, AreCalledOnceForAMicroBatchOfAPipeline) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    for (const std::string schedule : {"1f1b", "zb-h1"}) {
      Layered module(true);
      int calls = 0;
      module.weight.register_hook([&](const Tensor& g) {
        ++calls;
        return g * 2;
      });
      Pipeline pipeline(axis,
                        parallel::pipeline::generate(*parallel::pipeline::find_generator(schedule),
                                                     {2, kMicroBatches}),
                        {.shape = {3, 4}},
                        {.forward =
                             [&](int, int m, const Tensor& in) {
                               return in.defined() ? module.forward(in)
                                                   : module.linear->forward(batch(0, m));
                             },
                         .before_backward = {},
                         .after_backward = {},
                         .backward_weights = {}});
      (void)pipeline.step();
      EXPECT_EQ(calls, kMicroBatches) << schedule;

      const Tensor w[] = {whole_numbers({4, 4}, 1).requires_grad_(),
                          whole_numbers({4, 4}, 1).requires_grad_()};
      for (int m = 0; m < kMicroBatches; ++m) {
        const Tensor y = at::linear(batch(0, m), w[0], module.bias.detach());
        at::linear(y, w[1], module.bias.detach()).square().sum().backward();
      }
      EXPECT_TRUE(at::equal(module.weight.grad(), w[comm.rank()].grad() * 2)) << schedule;
    }
  });
}

TEST(TorchGradients, OfSomeTensorsAloneAreNotTheEngines) {
  const Tensor sum = sum_of_gradients(1);
  run_thread_ranks(1, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    for (const bool ours : {false, true}) {
      Layered module(ours), alone(false);
      const auto model = trained("data parallel", axis, module);
      const Tensor asked = torch::autograd::grad({module.forward(batch(0, 7))}, {module.weight})[0];
      alone.forward(batch(0, 7)).backward();
      model->step(0);
      model->expect(sum, ours ? "ours" : "torch's");
      EXPECT_TRUE(at::equal(asked, alone.weight.grad()));
    }
  });
}

TEST(TorchLifetimes, AGraphOutlivesItsLayers) {
  const auto weights_of = [](const auto& layer) {
    const at::NoGradGuard no_grad;
    layer->weight.copy_(whole_numbers({4, 4}, 1));
    return layer->weight;
  };
  run_thread_ranks(1, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    const Tensor w = whole_numbers({4, 4}, 1).requires_grad_();
    at::linear(batch(0, 0), w).square().sum().backward();
    const auto expect = [&](auto layer) {
      const Tensor weight = weights_of(layer);
      {
        const at::NoGradGuard no_grad;
        layer->bias.zero_();
      }
      const Tensor x = batch(0, 0).requires_grad_();
      const Tensor loss = layer->forward(x).square().sum();
      layer.reset();
      loss.backward();
      EXPECT_TRUE(at::equal(weight.grad(), w.grad()));
      EXPECT_TRUE(x.grad().defined());
    };
    expect(std::make_shared<Linear>(4, 4));
    expect(std::make_shared<ColumnParallelLinear>(axis, "up", 4, 4));
    expect(std::make_shared<RowParallelLinear>(axis, "down", 4, 4));

    auto embedding = std::make_shared<VocabParallelEmbedding>(axis, "tokens", 4, 4);
    const Tensor rows = weights_of(embedding);
    const Tensor out = embedding->forward(at::arange(4)).square().sum();
    embedding.reset();
    out.backward();
    EXPECT_TRUE(at::equal(rows.grad(), whole_numbers({4, 4}, 1) * 2));

    auto entropy = std::make_unique<VocabParallelCrossEntropy>(axis, "loss", 4);
    const Tensor logits = at::zeros({2, 4}).requires_grad_();
    const Tensor loss = entropy->forward(logits, at::zeros({2}, at::kLong));
    entropy.reset();
    loss.backward();
    EXPECT_EQ(logits.grad()[1][1].item<float>(), 0.125f);
  });
}

// With gradients that go to an engine; of the data parallel one, later, too.
TEST(TorchLifetimes, AGraphOutlivesItsModuleInAnEngine) {
  const Tensor sum = sum_of_gradients(1);
  run_thread_ranks(1, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    for (const bool later : {false, true}) {
      auto module = std::make_shared<Layered>(true);
      const Tensor weight = module->weight;
      DataParallel ddp(axis, *module);
      const Tensor loss = module->forward(batch(0, 0)) + module->forward(batch(0, 1));
      module.reset();
      if (later) {
        std::vector<LaterGradients::Left> left;
        {
          const LaterGradients now(left);
          loss.backward();
        }
        LaterGradients::make_all(left);
        ddp.finish();
      } else {
        ddp.backward(loss);
      }
      EXPECT_TRUE(at::equal(weight.grad(), sum)) << later;
    }
    auto module = std::make_shared<Layered>(true);
    FullyShard shards({.shard = &axis}, {{"module", module.get()}});
    const auto use = [&](int m) {
      return shards.forward(
          0, [&](const Tensor& x) { return module->forward(x); }, batch(0, m));
    };
    const Tensor loss = use(0) + use(1);
    module.reset();
    shards.backward(loss);
    const auto shard = shards.engine().shard({0, 0});
    EXPECT_TRUE(at::equal(tensor_over(shard.gradient, {4, 4}, at::kFloat), sum));
  });
}

TEST(TorchLifetimes, AGradientOutlivesDataParallel) {
  const Tensor sum = sum_of_gradients(2);
  for (const bool ours : {false, true}) {
    std::vector<Tensor> kept(2);
    run_thread_ranks(2, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      Layered module(ours);
      Tensor first, as_it_was;
      {
        TrainedWhole model(axis, module);
        const auto no_sync = model.ddp.no_sync();
        model.ddp.backward(module.forward(batch(comm.rank(), 0)));
        first = module.weight.grad();
        as_it_was = first.clone();
      }
      EXPECT_TRUE(at::equal(first, as_it_was));
      {
        TrainedWhole model(axis, module);
        model.step(comm.rank());
      }
      EXPECT_TRUE(at::equal(module.weight.grad(), sum / 2));  // it stays, as after torch's DDP
      EXPECT_TRUE(at::equal(first, as_it_was));
      kept[static_cast<std::size_t>(comm.rank())] = module.weight.grad();
    });
    for (const Tensor& gradient : kept) EXPECT_TRUE(at::equal(gradient, sum / 2));
  }
}

// After a first step buckets are laid out anew, elsewhere.
TEST(TorchLifetimes, AGradientOutlivesItsBuckets) {
  run_thread_ranks(1, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Layered module(true);
    DataParallel ddp(axis, module);
    const Tensor loss = module.forward(batch(0, 0));
    loss.backward();
    const void* const before = ddp.engine().gradient(0);
    const Tensor kept = module.weight.grad(), as_it_was = kept.clone();
    ddp.finish();
    EXPECT_NE(ddp.engine().gradient(0), before);
    EXPECT_TRUE(at::equal(kept, as_it_was));
  });
}

// The buffer of what another stage sends is used again for the next micro-batch.
TEST(TorchPipeline, GradientsAreNoViewsOfItsBuffers) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Tensor bias = at::zeros({12}).requires_grad_();
    Pipeline pipeline(
        axis, parallel::pipeline::generate(*parallel::pipeline::find_generator("gpipe"), {2, 3}),
        {.shape = {3, 4}},
        {.forward =
             [&](int, int m, const Tensor& in) {
               if (!in.defined()) return whole_numbers({3, 4}, m) + bias.view({3, 4});
               return (in * whole_numbers({3, 4}, 5 + m)).sum();
             },
         .before_backward = {},
         .after_backward = {},
         .backward_weights = {}});
    (void)pipeline.step();
    if (comm.rank() != 0) return;
    Tensor expected = at::zeros({12});
    for (int m = 0; m < 3; ++m) expected += whole_numbers({12}, 5 + m);
    EXPECT_TRUE(at::equal(bias.grad(), expected)) << bias.grad();
  });
}

// As it is for torch's own functions that return a view: the gradients would be wrong.
TEST(TorchFullyShard, RefusesChangesInPlaceOfWhatPassesAUnit) {
  run_thread_ranks(1, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Layered module(true);
    FullyShard shards({.shard = &axis}, {{"module", &module}});
    const auto refused = [&](const auto& use) {
      try {
        use();
        ADD_FAILURE() << "no error";
      } catch (const c10::Error& e) {
        EXPECT_NE(std::string(e.what()).find("created inside a custom Function"), std::string::npos)
            << e.what();
      }
    };
    const Tensor x = batch(0, 0).requires_grad_();
    const Layer body = [&](const Tensor& t) { return module.linear->forward(t); };
    shards.forward(0, body, x).clone().relu_();
    refused([&] { shards.forward(0, body, x).relu_(); });
    refused([&] {
      shards.forward(
          0, [&](const Tensor& t) { return body(t.relu_()); }, x);
    });
  });
}

TEST(TorchLinear, LetsItsOutputBeChangedInPlace) {
  Linear linear(4, 4);
  const Tensor w = linear.weight.detach().clone().requires_grad_();
  const Tensor x = whole_numbers({2, 3, 4}, 1);
  linear.forward(x).relu_().square().sum().backward();
  at::linear(x, w, linear.bias.detach()).relu().square().sum().backward();
  EXPECT_TRUE(at::equal(linear.weight.grad(), w.grad()));
}

}  // namespace
}  // namespace tutti::libtorch
