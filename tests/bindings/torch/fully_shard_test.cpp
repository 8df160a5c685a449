// FullyShard and checkpoint(): what they do to parameters and .grad(), and what they say when
// something is wrong. Ranks are threads.
#include "bindings/torch/fully_shard.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "bindings/torch/check_finite.h"
#include "bindings/torch/checkpoint.h"
#include "tests/bindings/torch/small_modules.h"
#include "tests/support/thread_ranks.h"

namespace tutti::libtorch {
namespace {

using parallel::CommunicatorAxis;
using parallel::Policy;
using test::error_of;
using test::run_thread_ranks;
using testing::HasSubstr;

TEST(TorchFullyShard, NamesParametersThatDiffer) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Two module(comm.rank() == 1 ? 6 : 4);
    const Error e = error_of([&] { FullyShard({.shard = &axis}, {{"two", &module}}); });
    EXPECT_EQ(e.code(), ErrorCode::mismatch);
    EXPECT_THAT(e.what(), HasSubstr("a float32 [6]"));
  });
}

TEST(TorchFullyShard, ParametersHaveMemoryInTheirUnitOnly) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Sharded sharded(axis);
    EXPECT_THROW((void)sharded.module.forward(input(0)), c10::Error);
    sharded.shards.backward(sharded.forward(input(comm.rank())));
    EXPECT_THROW((void)sharded.module.forward(input(0)), c10::Error);
    EXPECT_THROW((void)sharded.module.a.grad().sum(), c10::Error);
    // d/da = x b, averaged over x = 1, 2; this rank has two of four elements.
    const auto shard = sharded.shards.engine().shard({0, 0});
    ASSERT_EQ(shard.count, 2u);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(static_cast<const float*>(shard.gradient)[i],
                1.5f * static_cast<float>(10 + shard.begin + i));
    }
    int read = 0;
    sharded.shards.read_parameters([&](const NamedTensor& p) {
      EXPECT_EQ(p.tensor[3].item<float>(), ++read == 1 ? 4 : 13) << p.name;
    });
    EXPECT_EQ(read, 2);
  });
}

TEST(TorchFullyShard, NamesTheGradientThatNeverComes) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Sharded sharded(axis);
    const Error e = error_of(
        [&] { sharded.shards.backward(sharded.forward(input(comm.rank()), comm.rank() == 0)); });
    EXPECT_EQ(e.code(), ErrorCode::mismatch);
    EXPECT_EQ(e.rank(), 1);
    EXPECT_THAT(e.what(), HasSubstr("the parameter b of unit 'two' got no gradient on rank 1"));
    sharded.shards.engine().discard_gradients();
    sharded.shards.allow_unused();
    sharded.shards.backward(sharded.forward(input(comm.rank()), comm.rank() == 0));
    const auto shard = sharded.shards.engine().shard({0, 1});  // x a / 2, of rank 0 alone
    EXPECT_EQ(*static_cast<const float*>(shard.gradient), 0.5f * (1 + 2 * comm.rank()));
  });
}

TEST(TorchFullyShard, NamesWhoMadeANaN) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Policy policy = Policy::zero2();
    policy.check_finite = true;
    Sharded sharded(axis, policy);
    const float factor = comm.rank() == 1 ? std::numeric_limits<float>::infinity() : 1;
    const Error e =
        error_of([&] { sharded.shards.backward(sharded.forward(input(comm.rank())) * factor); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(e.what(), HasSubstr("unit 'two' is not finite"));
    EXPECT_EQ(e.rank(), 1);
  });
}

TEST(TorchFullyShard, AddsASecondBackwardUp) {
  for (const Policy& policy : {Policy::zero1(), Policy::zero2(), Policy::fsdp()}) {
    run_thread_ranks(2, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      Sharded sharded(axis, policy);
      const Tensor loss = sharded.forward(input(comm.rank()));
      loss.backward({}, true);
      sharded.shards.finish();
      loss.backward();
      sharded.shards.finish();
      const auto shard = sharded.shards.engine().shard({0, 0});  // of each backward 1.5 b
      for (std::size_t i = 0; i < shard.count; ++i) {
        EXPECT_EQ(static_cast<const float*>(shard.gradient)[i],
                  2 * 1.5f * static_cast<float>(10 + shard.begin + i));
      }
    });
  }
}

// The rank that throws may live on; the others do not wait for it until their time is over.
TEST(TorchFullyShard, ARankThatFailsInForwardEndsAll) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Sharded model(axis);
    const auto step = [&](bool throws) {
      const Tensor loss = model.shards.forward(
          0,
          [&](const Tensor& x) {
            if (throws) throw std::runtime_error("no memory for this");
            return model.module.forward(x);
          },
          input(comm.rank()));
      model.shards.backward(loss);
      model.shards.engine().discard_gradients();
    };
    step(false);
    std::string said;
    try {
      step(comm.rank() == 1);
    } catch (const std::exception& e) {
      said = e.what();
    }
    EXPECT_THAT(said, HasSubstr("no memory for this"));
    if (comm.rank() != 1) {
      EXPECT_THAT(said, HasSubstr("rank 1 failed in the forward of unit 'two'"));
    }
  });
}

TEST(TorchFullyShard, RefusesABackwardAfterItsEnd) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Tensor loss;
    {
      Sharded model(axis);
      loss = model.forward(input(comm.rank()));
    }
    const Error e = error_of([&] { loss.backward(); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_usage);
    EXPECT_THAT(e.what(), HasSubstr("whose FullyShard is no more"));
    EXPECT_EQ(error_of([&] {
                FullyShard({.shard = &axis}, {{"none", nullptr}});
              }).code(),
              ErrorCode::invalid_argument);
  });
}

TEST(TorchFullyShard, NestsUnits) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Two inner, all;
    all.register_module("inner", std::shared_ptr<Two>(&inner, [](Two*) {}));
    FullyShard shards({.shard = &axis}, {{"inner", &inner}, {"the rest", &all}}, Policy::zero3());
    EXPECT_EQ(shards.engine().unit(1).parameters.size(), 2u);
    // a' (a b x) + b', with a' and b' of the outer unit, which is used before and after.
    const Tensor loss = shards.forward(
        1,
        [&](const Tensor& x) {
          const Tensor y = shards.forward(
              0, [&](const Tensor& t) { return t * inner.a * inner.b; }, x * all.a);
          return (y + all.b * y).sum();
        },
        input(comm.rank()));
    shards.backward(loss);
    // d/db = x' a' a b, of x' = 1.5 on average; d/da' = a b (1 + b') x'.
    for (const std::size_t p : {0u, 1u}) {
      const auto shard = shards.engine().shard({1, p});
      for (std::size_t i = 0; i < shard.count; ++i) {
        const float a = static_cast<float>(1 + shard.begin + i), b = a + 9;
        EXPECT_EQ(static_cast<const float*>(shard.gradient)[i],
                  p == 0 ? 1.5f * a * b * (1 + b) : 1.5f * a * a * b);
      }
    }
  });
}

TEST(TorchCheckpoint, ComputesTheSameTwice) {
  for (const bool needs_input : {true, false}) {
    const Two module;
    int forwards = 0;
    const Layer body = [&](const Tensor& x) {
      ++forwards;
      return at::dropout(x * module.a * module.b, 0.5, true);
    };
    Tensor gradients[2][2];
    for (const bool recompute : {false, true}) {
      at::manual_seed(7);
      Tensor x = at::ones({64, 4}).requires_grad_(needs_input);
      module.a.mutable_grad().reset();
      const Tensor y = recompute ? checkpoint(body, x) : body(x);
      (void)at::rand({3});  // what was drawn meanwhile makes no difference
      y.sum().backward();
      gradients[recompute][0] = module.a.grad();
      gradients[recompute][1] = needs_input ? x.grad() : Tensor(at::zeros({1}));
    }
    EXPECT_EQ(forwards, 3);
    EXPECT_TRUE(at::equal(gradients[0][0], gradients[1][0]));
    EXPECT_TRUE(at::equal(gradients[0][1], gradients[1][1]));
  }
}

struct Autocasting {
  Autocasting() {
    at::autocast::increment_nesting();
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  ~Autocasting() {
    at::autocast::set_autocast_enabled(at::kCPU, false);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  }
};

// Backward is outside of it, as torch recommends.
TEST(TorchCheckpoint, ComputesInTheTypeOfTheForward) {
  const Tensor w = (at::arange(16, at::kFloat) / 7).view({4, 4}).requires_grad_();
  std::vector<at::ScalarType> types;
  const Layer body = [&](const Tensor& x) {
    const Tensor y = at::linear(x, w);
    types.push_back(y.scalar_type());
    return y;
  };
  Tensor gradients[2];
  for (const bool recompute : {false, true}) {
    w.mutable_grad().reset();
    Tensor loss;
    {
      const Autocasting autocast;
      const Tensor x = at::ones({3, 4}) / 3;
      const Tensor y = recompute ? checkpoint(body, x) : body(x);
      loss = at::linear(y, w).square().sum();  // the same matrix, outside of it
    }
    loss.backward();
    gradients[recompute] = w.grad();
  }
  EXPECT_EQ(types, std::vector<at::ScalarType>(3, at::kBFloat16));
  EXPECT_TRUE(at::equal(gradients[0], gradients[1])) << gradients[0] << gradients[1];
}

// A segment of several units, which are gathered once more for it.
TEST(TorchCheckpoint, GathersUnitsAgain) {
  for (const Policy& policy : {Policy::zero1(), Policy::zero2(), Policy::zero3(), Policy::fsdp()}) {
    run_thread_ranks(2, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      Two first, second;
      FullyShard shards({.shard = &axis}, {{"first", &first}, {"second", &second}}, policy);
      const auto unit = [&](std::size_t u, const Tensor& x) {
        const Two& module = u == 0 ? first : second;
        return shards.forward(
            u, [&](const Tensor& t) { return t * module.a + module.b; }, x);
      };
      const Layer segment = [&](const Tensor& x) { return unit(1, unit(0, x)); };
      std::vector<float> gradients[2];
      // The second step knows the order of the units from the first.
      for (int step = 0; step < 2; ++step) {
        for (const bool recompute : {false, true}) {
          auto& made = gradients[recompute];
          made.clear();
          const Tensor x = input(comm.rank()).clone().requires_grad_(true);
          const Tensor y = recompute ? checkpoint(segment, x) : segment(x);
          shards.backward(y.square().sum());
          for (const std::size_t u : {0u, 1u}) {
            for (const std::size_t p : {0u, 1u}) {
              const auto shard = shards.engine().shard({u, p});
              const auto* const g = static_cast<const float*>(shard.gradient);
              made.insert(made.end(), g, g + shard.count);
            }
          }
          const Tensor g = x.grad().contiguous();
          made.insert(made.end(), g.const_data_ptr<float>(), g.const_data_ptr<float>() + 4);
          shards.engine().discard_gradients();
        }
        EXPECT_EQ(gradients[0], gradients[1]) << "step " << step;
      }
    });
  }
}

}  // namespace
}  // namespace tutti::libtorch
