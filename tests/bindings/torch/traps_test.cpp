// What a program of torch's does with a module, and what that means where ranks share it: it is
// right, or an error that says what to do; never nothing.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "bindings/torch/data_parallel.h"
#include "bindings/torch/fully_shard.h"
#include "bindings/torch/linear.h"
#include "bindings/torch/optimizer.h"
#include "bindings/torch/tensor_parallel.h"
#include "tests/bindings/torch/whole_numbers.h"
#include "tests/support/thread_ranks.h"

namespace tutti::libtorch {
namespace {

using parallel::CommunicatorAxis;
using parallel::Policy;
using parallel::Sgd;
using test::error_of;
using test::run_thread_ranks;
using test::whole_numbers;
using testing::HasSubstr;

/// What a call throws, of torch or of Tutti.
std::string why(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& e) {
    return what_of(e);
  }
  return "nothing";
}

struct Pair : torch::nn::Module {
  Pair() {
    const at::NoGradGuard no_grad;
    for (const auto& layer : {one, two}) {
      layer->weight.copy_(whole_numbers({4, 4}, 1));
      layer->bias.copy_(whole_numbers({4}, 2));
    }
    register_module("one", one);
    register_module("two", two);
  }
  std::shared_ptr<torch::nn::LinearImpl> one = std::make_shared<torch::nn::LinearImpl>(4, 4),
                                         two = std::make_shared<torch::nn::LinearImpl>(4, 4);
};

struct ShardedPair {
  explicit ShardedPair(parallel::Axis& axis, const Policy& policy = Policy::fsdp())
      : shards(std::make_unique<FullyShard>(
            parallel::ShardedAxes{.shard = &axis}, *model,
            std::vector<FullyShard::Unit>{{"one", model->one.get()}, {"two", model->two.get()}},
            policy)) {}
  void backward() {
    Tensor x = whole_numbers({3, 4}, 3);
    x = shards->forward(
        0, [&](const Tensor& t) { return model->one->forward(t); }, x);
    x = shards->forward(
        1, [&](const Tensor& t) { return model->two->forward(t); }, x);
    shards->backward(x.square().sum());
  }
  const std::shared_ptr<Pair> model = std::make_shared<Pair>();
  std::unique_ptr<FullyShard> shards;
};

TEST(TorchShards, CannotBeReadAsIfTheyWereWhole) {
  for (const Policy& policy : {Policy::zero1(), Policy::fsdp()}) {
    run_thread_ranks(2, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      ShardedPair pair(axis, policy);
      const Tensor& weight = pair.model->one->weight;
      for (int step = 0; step < 2; ++step) {
        const std::string shards = "the parameter weight of unit 'one' is in shards";
        EXPECT_THAT(
            why([&] {
              std::ostringstream file;
              torch::save(pair.model, file);
            }),
            AllOf(HasSubstr(shards), HasSubstr("save() and read_parameters() show all of it")));
        EXPECT_EQ(weight.sizes(), at::IntArrayRef({4, 4}));
        EXPECT_THAT(why([&] { (void)weight.sum().item<float>(); }), HasSubstr(shards));
        EXPECT_THAT(why([&] { (void)weight.clone(); }), HasSubstr(shards));
        EXPECT_THAT(why([&] { pair.model->to(at::kDouble); }), HasSubstr(shards));
        EXPECT_THAT(why([&] {
                      (void)pair.model->one->forward(at::ones({1, 4}));
                    }),
                    HasSubstr("unit 'one' is in shards"));
        EXPECT_THAT(why([&] {
                      const at::NoGradGuard no_grad;
                      weight.zero_();
                    }),
                    HasSubstr(shards));
        pair.backward();
        pair.shards->engine().step(Sgd({.learning_rate = 1.0 / 64}));
      }
    });
  }
}

TEST(TorchShards, AreNotForOptimizersOfWholeTensors) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ShardedPair pair(axis);
    torch::optim::SGD sgd(pair.model->parameters(), torch::optim::SGDOptions(0.1));
    torch::optim::AdamW adamw(pair.model->parameters());
    LocalOptimizer local(trained_parameters(*pair.model));
    for (int step = 0; step < 2; ++step) {
      sgd.zero_grad();  // which does no harm
      pair.backward();
      EXPECT_THAT(why([&] { sgd.step(); }), HasSubstr("is in shards"));
      EXPECT_THAT(why([&] { adamw.step(); }), HasSubstr("is in shards"));
      EXPECT_THAT(why([&] { local.step(parallel::AdamW()); }), HasSubstr("is in shards"));
      EXPECT_THAT(why([&] { torch::nn::utils::clip_grad_norm_(pair.model->parameters(), 1.0); }),
                  HasSubstr("unit 'one' is in shards, and so is its gradient"));
      EXPECT_GT(pair.shards->engine().clip_gradients(1.0), 0);
      pair.shards->engine().step(Sgd({.learning_rate = 1.0 / 64}));
    }
  });
}

TEST(TorchShards, GoWithTheirEngineUnlessTheyAreRestored) {
  for (const auto& precision : {parallel::Precision{}, parallel::Precision::mixed()}) {
    run_thread_ranks(3, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      ShardedPair pair(axis, Policy::fsdp(precision)), lost(axis);
      lost.shards.reset();
      EXPECT_THAT(why([&] { (void)lost.model->two->bias.clone(); }),
                  AllOf(HasSubstr("bias of unit 'two' has gone with its FullyShard"),
                        HasSubstr("restore()")));
      const float before = 0.25f;
      pair.shards->load(Sgd(), [&](ParameterState& p) {
        p.value.fill_(p.name == "two.bias" ? before : 1);
        p.value.view({-1})[1] = before + 1.0f / 1024;  // less than bfloat16 would see
      });
      pair.shards->restore();
      EXPECT_THAT(why([&] { pair.backward(); }), HasSubstr("forward() after restore()"));
      EXPECT_THAT(why([&] { pair.shards->restore(); }), HasSubstr("after restore()"));
      // An ordinary module, from here on.
      std::stringstream file;
      torch::save(pair.model, file);
      const auto other = std::make_shared<Pair>();
      auto read = other;
      torch::load(read, file);
      EXPECT_EQ(read->two->bias.scalar_type(), at::kFloat);
      EXPECT_EQ(read->two->bias[0].item<float>(), before);
      EXPECT_EQ(read->two->bias[1].item<float>(), before + 1.0f / 1024);
      EXPECT_EQ(read->one->weight.sum().item<float>(), 15 + before + 1.0f / 1024);
      torch::optim::SGD sgd(pair.model->parameters(), torch::optim::SGDOptions(1));
      pair.model->two->forward(at::ones({1, 4})).sum().backward();
      sgd.step();
      pair.shards.reset();
      EXPECT_EQ(pair.model->two->bias[0].item<float>(), before - 1);
    });
  }
}

// Of which they would not know.
TEST(TorchShards, RefuseMemoryThatTheyWereNotGiven) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ShardedPair pair(axis);
    pair.model->one->weight.set_data(at::ones({4, 4}));
    const Error e = error_of([&] { pair.backward(); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_usage);
    EXPECT_THAT(e.what(),
                AllOf(HasSubstr("the parameter weight of unit 'one' was given other memory"),
                      HasSubstr("FullyShard::load()")));
  });
}

TEST(TorchShards, AreNotLoadedBehindTheirEnginesBack) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ShardedPair pair(axis);
    // At once or, by a torch that gives them other memory, at the next forward.
    const std::string said = why([&] {
      std::stringstream file;
      torch::save(std::make_shared<Pair>(), file);
      auto model = pair.model;
      torch::load(model, file);
      pair.backward();
    });
    EXPECT_THAT(said, AllOf(HasSubstr("the parameter weight of unit 'one'"), HasSubstr("load()")));
  });
}

TEST(TorchShards, AreReadByTheNamesOfTheirUnits) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ShardedPair pair(axis);
    std::vector<std::string> names;
    pair.shards->read_parameters([&](const NamedTensor& p) { names.push_back(p.name); });
    EXPECT_EQ(names,
              (std::vector<std::string>{"one.weight", "one.bias", "two.weight", "two.bias"}));
  });
}

TEST(TorchShards, OfAModelHaveAllThatIsTrained) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    const parallel::ShardedAxes axes{.shard = &axis};
    Pair model;
    model.register_parameter("scale", at::ones({1}));
    model.register_parameter("fixed", at::ones({1}), false);
    const std::vector<FullyShard::Unit> layers{{"one", model.one.get()}, {"two", model.two.get()}};
    const Error e = error_of([&] { FullyShard(axes, model, layers); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(e.what(), HasSubstr("the parameter scale is trained, and in no unit"));
    EXPECT_EQ(model.one->weight.sum().item<float>(), whole_numbers({4, 4}, 1).sum().item<float>());
    auto with_rest = layers;
    with_rest.push_back({"rest", &model});
    FullyShard shards(axes, model, with_rest);
    EXPECT_EQ(shards.engine().unit(2).parameters.size(), 1u);
  });
}

// A parameter that is frozen when ranks begin, and trained later, would be each rank's own.
TEST(TorchModules, RefuseParametersThatAreTrainedLater) {
  const std::string expected = "bias was not trained when its module was wrapped";
  run_thread_ranks(2, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Pair model;
    model.one->bias.set_requires_grad(false);
    DataParallel ddp(axis, model);
    const auto step = [&] {
      ddp.backward(model.one->forward(at::ones({1, 4})).sum() +
                   model.two->forward(at::ones({1, 4})).sum());
    };
    step();
    comm.barrier();  // a rank that fails aborts the calls that others still wait in
    model.one->bias.set_requires_grad(true);
    EXPECT_THAT(why(step), HasSubstr(expected));
  });
  run_thread_ranks(2, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Pair model;
    model.one->bias.set_requires_grad(false);
    FullyShard shards({.shard = &axis}, {{"one", model.one.get()}});
    model.one->bias.set_requires_grad(true);
    const Tensor loss = shards.forward(
        0, [&](const Tensor& x) { return model.one->forward(x).sum(); }, at::ones({1, 4}));
    comm.barrier();
    EXPECT_THAT(why([&] { shards.backward(loss); }), HasSubstr(expected));
  });
}

// --- Buffers
// -----------------------------------------------------------------------------------------

struct Normed : torch::nn::Module {
  Normed() { register_module("norm", norm); }
  Tensor forward(const Tensor& x) { return norm->forward(x).square().sum() + x.sum(); }
  float mean() const { return norm->running_mean[1].item<float>(); }
  std::int64_t batches() const { return norm->num_batches_tracked.item<std::int64_t>(); }
  std::shared_ptr<torch::nn::BatchNorm1dImpl> norm =
      std::make_shared<torch::nn::BatchNorm1dImpl>(torch::nn::BatchNormOptions(2).momentum(0.5));
};
/// Of which the mean is `mean`.
Tensor rows_around(float mean) {
  return at::tensor({mean - 1, mean - 1, mean + 1, mean + 1}).view({2, 2});
}

TEST(TorchBuffers, AreThoseOfRank0AfterEachStep) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Normed model;
    DataParallel ddp(axis, model);
    const auto mine = static_cast<float>(8 * comm.rank());
    float expected = 0;
    for (int step = 0; step < 3; ++step) {
      model.zero_grad();
      {
        const auto no_sync = ddp.no_sync();
        ddp.backward(model.forward(rows_around(mine + 2)));
        EXPECT_EQ(model.mean(), (expected + mine + 2) / 2);  // its own, as nothing is sent
      }
      ddp.backward(model.forward(rows_around(mine + 4)));
      expected = ((expected + 2) / 2 + 4) / 2;
      EXPECT_EQ(model.mean(), expected);
      EXPECT_EQ(model.batches(), 2 * (step + 1));
    }
    ddp.share_buffers(false);
    ddp.backward(model.forward(rows_around(mine)));
    EXPECT_EQ(model.mean(), (expected + mine) / 2);
  });
}

TEST(TorchBuffers, AreThoseOfARankThatHasData) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Normed model;
    DataParallel ddp(axis, model, {.uneven_inputs = true});
    std::vector<float> means;
    const auto mine = static_cast<float>(8 * comm.rank());
    // Rank 1 has data for two steps, the others for one.
    for (int step = 0; step < (comm.rank() == 1 ? 2 : 1); ++step) {
      model.zero_grad();
      ddp.backward(model.forward(rows_around(mine + 2)));
      means.push_back(model.mean());
    }
    ddp.join([&] { means.push_back(model.mean()); });
    EXPECT_EQ(means, (std::vector<float>{1, 5.5}));  // 2 / 2, then (1 + 10) / 2
  });
}

TEST(TorchBuffers, OfShardsAreThoseOfTheFirstRankAfterEachStep) {
  run_thread_ranks(4, [](Communicator& comm) {
    Communicator shard = comm.split(comm.rank() / 2, comm.rank()),
                 replicas = comm.split(comm.rank() % 2, comm.rank());
    CommunicatorAxis axis(shard), replicate(replicas);
    Normed model;
    FullyShard shards({.shard = &axis, .replicate = &replicate}, {{"model", &model}});
    for (const bool shared : {true, false}) {
      shards.share_buffers(shared);
      const float before = model.mean(), mine = static_cast<float>(8 * comm.rank() + 2);
      shards.backward(shards.forward(
          0, [&](const Tensor& x) { return model.forward(x); }, rows_around(mine)));
      EXPECT_EQ(model.mean(), (before + (shared ? 2 : mine)) / 2);
      shards.engine().discard_gradients();
    }
  });
}

// --- Layers that ranks share
// -------------------------------------------------------------------------

/// One of several ranks; the others are not there, so its calls do nothing.
struct AxisAlone final : parallel::Axis {
  AxisAlone(int rank, int size) : Axis(rank, size) {}
  std::unique_ptr<parallel::Pending::Work> begin(const Call&) override { return nullptr; }
};

// Each rank is a process then, with random numbers of its own: here they are made one by one.
TEST(TorchSharedLayers, BeginAsOneRankWouldHaveThem) {
  constexpr std::int64_t kIn = 12, kOut = 8000, kTokens = 21, kWidth = 40;
  at::manual_seed(7);
  const Linear up(kIn, kOut), down(kOut, kIn);
  Tensor embedding, drawn_next;
  for (const int ranks : {1, 2, 4}) {
    std::vector<Tensor> up_weight, up_bias, down_weight, tokens;
    for (int rank = 0; rank < ranks; ++rank) {
      AxisAlone axis(rank, ranks);
      at::manual_seed(7);
      const ColumnParallelLinear column(axis, "up", kIn, kOut);
      const RowParallelLinear row(axis, "down", kOut, kIn);
      const VocabParallelEmbedding vocabulary(axis, "tokens", kTokens, kWidth);
      const Tensor next = at::rand({4});
      if (!drawn_next.defined()) drawn_next = next;
      EXPECT_TRUE(at::equal(next, drawn_next));  // ranks go on with the same numbers
      up_weight.push_back(column.weight);
      up_bias.push_back(column.bias);
      down_weight.push_back(row.weight);
      EXPECT_TRUE(at::equal(row.bias, down.bias));
      tokens.push_back(vocabulary.weight);
    }
    EXPECT_TRUE(at::equal(at::cat(up_weight), up.weight));
    EXPECT_TRUE(at::equal(at::cat(up_bias), up.bias));
    EXPECT_TRUE(at::equal(at::cat(down_weight, 1), down.weight));
    const Tensor all = at::cat(tokens);
    if (!embedding.defined()) embedding = all;
    EXPECT_TRUE(at::equal(all.slice(0, 0, kTokens), embedding));
    EXPECT_EQ(all.slice(0, kTokens).abs().sum().item<float>(), 0);  // what pads the vocabulary
  }
  EXPECT_NEAR(embedding.std().item<float>(), 1, 0.1);
}

TEST(TorchSharedLayers, HaveOneBiasWhateverTheSeeds) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    const RowParallelLinear row(axis, "down", 6, 5);  // ranks of one process draw in any order
    Tensor of_rank0 = row.bias.detach().clone();
    comm.broadcast(of_rank0.mutable_data_ptr<float>(), of_rank0.mutable_data_ptr<float>(), 5,
                   DataType::float32, 0);
    EXPECT_TRUE(at::equal(row.bias, of_rank0));
    EXPECT_GT(row.bias.abs().max().item<float>(), 0);
    EXPECT_LE(row.weight.abs().max().item<float>(), 1 / std::sqrt(6.0f));
  });
}

// --- A unit twice in stage 1
// -------------------------------------------------------------------------

TEST(TorchShards, OfStage1MayBeUsedTwice) {
  for (const Policy& policy : {Policy::zero1(), Policy::zero2(), Policy::fsdp()}) {
    run_thread_ranks(2, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      ShardedPair pair(axis, policy);
      const auto input = [&](int which) {
        return whole_numbers({3, 4}, which + 2 * comm.rank()).requires_grad_();
      };
      const auto loss_of = [&](const Layer& layer) {
        return layer(layer(input(0))).sum() + layer(input(1)).square().sum();
      };
      Pair alone;
      Tensor sum = at::zeros({4, 4});
      for (int rank = 0; rank < 2; ++rank) {
        const auto of_rank = [&](int which) { return whole_numbers({3, 4}, which + 2 * rank); };
        const auto& layer = alone.one;
        (layer->forward(layer->forward(of_rank(0))).sum() +
         layer->forward(of_rank(1)).square().sum())
            .backward();
      }
      sum = alone.one->weight.grad() / 2;
      for (int step = 0; step < 2; ++step) {
        pair.shards->backward(loss_of([&](const Tensor& t) {
          return pair.shards->forward(
              0, [&](const Tensor& x) { return pair.model->one->forward(x); }, t);
        }));
        const auto shard = pair.shards->engine().shard({0, 0});
        for (std::size_t i = 0; i < shard.count; ++i) {
          EXPECT_EQ(static_cast<const float*>(shard.gradient)[i],
                    sum.view({-1})[static_cast<std::int64_t>(shard.begin + i)].item<float>());
        }
        pair.shards->engine().discard_gradients();
      }
    });
  }
}

}  // namespace
}  // namespace tutti::libtorch
