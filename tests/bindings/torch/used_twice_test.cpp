// Layers that a step uses more than once: towers that share their weights, a layer on its own
// output. All contributions to a gradient count, whatever makes them, and whenever.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>

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
#include "tests/bindings/torch/whole_numbers.h"
#include "tests/support/thread_ranks.h"

namespace tutti::libtorch {
namespace {

using parallel::CommunicatorAxis;
using parallel::Policy;
using test::run_thread_ranks;
using test::whole_numbers;

/// A layer of 4 inputs and 4 outputs, of one of the kinds that there are.
struct Tower : torch::nn::Module {
  Tower(const std::string& kind, parallel::Axis& alone) {
    const auto take = [&](const auto& made) {
      register_module("layer", made);
      weight = made->weight;
      bias = made->bias;
      layer = [made](const Tensor& x) { return made->forward(x); };
    };
    if (kind == "torch") {
      weight = register_parameter("weight", at::empty({4, 4}));
      bias = register_parameter("bias", at::empty({4}));
      layer = [this](const Tensor& x) { return at::linear(x, weight, bias); };
    } else if (kind == "linear" || kind == "computed again") {
      take(std::make_shared<Linear>(4, 4));
      if (kind == "computed again") {
        layer = [once = layer](const Tensor& x) { return checkpoint(once, x); };
      }
    } else if (kind == "column") {
      take(std::make_shared<ColumnParallelLinear>(alone, "tower", 4, 4));
    } else {
      take(std::make_shared<RowParallelLinear>(alone, "tower", 4, 4));
    }
    const at::NoGradGuard no_grad;
    weight.copy_(whole_numbers({4, 4}, 1));
    bias.copy_(whole_numbers({4}, 2));
  }
  Tensor weight, bias;
  Layer layer;
};

/// Two towers, and one on the output of another.
Tensor loss_of(const Layer& tower, int seed, bool input_needs_gradient) {
  const auto input = [&](int which) {
    return whole_numbers({3, 4}, seed + which).requires_grad_(input_needs_gradient);
  };
  const Tensor one = tower(input(0)), other = tower(input(1));
  return (one * other + tower(one)).sum();
}

constexpr int kMicroBatches = 2;

/// Sums over the ranks' data, by torch alone.
std::pair<Tensor, Tensor> sums(int ranks) {
  const Tensor w = whole_numbers({4, 4}, 1).requires_grad_();
  const Tensor b = whole_numbers({4}, 2).requires_grad_();
  for (int seed = 0; seed < ranks * kMicroBatches; ++seed) {
    loss_of([&](const Tensor& x) { return at::linear(x, w, b); }, seed, false).backward();
  }
  return {w.grad(), b.grad()};
}

void expect_shard(parallel::ShardedDataParallel& engine, parallel::ParameterId id,
                  const Tensor& expected, const std::string& what) {
  const auto shard = engine.shard(id);
  const Tensor flat = expected.flatten();
  for (std::size_t i = 0; i < shard.count; ++i) {
    EXPECT_EQ(static_cast<const float*>(shard.gradient)[i],
              flat[static_cast<std::int64_t>(shard.begin + i)].item<float>())
        << what << ", element " << shard.begin + i;
  }
}

TEST(TorchUsedTwice, AUnitsGradientsAreAddedUp) {
  const std::pair<const char*, Policy> policies[] = {
      {"zero2", Policy::zero2()}, {"zero3", Policy::zero3()}, {"fsdp", Policy::fsdp()}};
  for (const int ranks : {1, 2}) {
    const auto [weight, bias] = sums(ranks);
    run_thread_ranks(ranks, [&](Communicator& comm) {
      Communicator alone = comm.split(comm.rank(), 0);
      CommunicatorAxis axis(comm), tensor(alone);
      for (const std::string kind : {"torch", "linear", "computed again", "column", "row"}) {
        for (const auto& [name, policy] : policies) {
          for (const bool input_needs_gradient : {false, true}) {
            Tower tower(kind, tensor);
            FullyShard shards({.shard = &axis}, {{"tower", &tower}}, policy);
            const Layer unit = [&](const Tensor& x) { return shards.forward(0, tower.layer, x); };
            for (int step = 0; step < 2; ++step) {
              for (int m = 0; m < kMicroBatches; ++m) {
                shards.synchronise(m + 1 == kMicroBatches || step == 1);
                shards.backward(
                    loss_of(unit, comm.rank() * kMicroBatches + m, input_needs_gradient));
              }
              const std::string what = kind + ", " + name;
              expect_shard(shards.engine(), {0, 0}, weight / ranks, what);
              expect_shard(shards.engine(), {0, 1}, bias / ranks, what);
              shards.engine().discard_gradients();
            }
          }
        }
      }
    });
  }
}

TEST(TorchUsedTwice, AnEmbeddingsGradientsAreAddedUp) {
  const Tensor ids[] = {at::arange(6) % 4, at::arange(4)};
  const Tensor w = whole_numbers({4, 4}, 1).requires_grad_();
  (at::embedding(w, ids[0]).square().sum() + at::embedding(w, ids[1]).sum()).backward();
  run_thread_ranks(1, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    for (const auto& policy : {Policy::zero2(), Policy::fsdp()}) {
      VocabParallelEmbedding embedding(axis, "tokens", 4, 4);
      {
        const at::NoGradGuard no_grad;
        embedding.weight.copy_(w);
      }
      FullyShard shards({.shard = &axis}, {{"tokens", &embedding}}, policy);
      const auto use = [&](const Tensor& tokens) {
        return shards.forward(
            0, [&](const Tensor& t) { return embedding.forward(t); }, tokens);
      };
      shards.backward(use(ids[0]).square().sum() + use(ids[1]).sum());
      expect_shard(shards.engine(), {0, 0}, w.grad(), "embedding");
    }
  });
}

/// Two stages, each a layer that is used twice, and four micro-batches.
struct Stage : torch::nn::Module {
  Stage() : linear(std::make_shared<Linear>(4, 4)) {
    const at::NoGradGuard no_grad;
    register_module("linear", linear);
    linear->weight.copy_(whole_numbers({4, 4}, 1) / 4);
    linear->bias.copy_(whole_numbers({4}, 2));
    // Torch makes this one's gradient, and the layer adds to another one's.
    scale = register_parameter("scale", at::ones({4}));
  }
  Tensor forward(const Tensor& x) const {
    return linear->forward(at::linear(linear->forward(x), linear->weight) * scale);
  }
  std::shared_ptr<Linear> linear;
  Tensor scale;
};

/// By data parallel ranks with a schedule; gradients of this rank's stage.
std::vector<Tensor> train(const std::string& schedule, Communicator& comm) {
  Communicator alone = comm.split(comm.rank(), 0);
  CommunicatorAxis stages(comm), data(alone);
  constexpr int kOfAPipeline = 4;
  Stage stage;
  DataParallel ddp(data, stage);
  std::optional<parallel::DataParallel::NoSync> no_sync;
  const auto begin = [&](bool last) {
    if (!last) no_sync.emplace(ddp.engine());
  };
  const auto end = [&] {
    ddp.finish();
    no_sync.reset();
  };
  Pipeline pipeline(
      stages,
      parallel::pipeline::generate(*parallel::pipeline::find_generator(schedule),
                                   {2, kOfAPipeline}),
      {.shape = {3, 4}},
      {.forward =
           [&](int, int m, const Tensor& in) {
             const Tensor y = stage.forward(in.defined() ? in : whole_numbers({3, 4}, m));
             return in.defined() ? y.square().sum() : y;
           },
       .before_backward = [&](int, bool last) { begin(last); },
       .after_backward = [&](int, bool) { end(); },
       .backward_weights =
           [&](int, bool last, const std::function<void()>& make) {
             begin(last);
             make();
             end();
           }});
  std::vector<Tensor> gradients;
  for (int step = 0; step < 2; ++step) {
    stage.zero_grad();
    (void)pipeline.step();
    gradients.clear();
    for (const Tensor& p : stage.parameters()) gradients.push_back(p.grad().clone());
  }
  return gradients;
}

TEST(TorchUsedTwice, ALayerHasItsGradientsLaterInDataParallel) {
  run_thread_ranks(2, [](Communicator& comm) {
    const auto expected = train("1f1b", comm);
    for (const std::string schedule : {"zb-h1", "zb-h2"}) {
      const auto made = train(schedule, comm);
      ASSERT_EQ(made.size(), expected.size());
      for (std::size_t i = 0; i < made.size(); ++i) {
        EXPECT_GT(expected[i].abs().sum().item<float>(), 0);
        EXPECT_TRUE(at::allclose(made[i], expected[i])) << schedule << " " << i << made[i];
      }
    }
  });
}

}  // namespace
}  // namespace tutti::libtorch
