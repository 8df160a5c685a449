// What the optimizer knows of each parameter: its steps are counted, saved, and gone on from with
// the same bits; and gradients that are reduced several times in a step.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <optional>
#include <vector>

#include "parallel/sharded/sharded.h"
#include "tests/parallel/sharded_model.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using parallel::AdamW;
using parallel::CommunicatorAxis;
using parallel::Optimizer;
using parallel::ParameterId;
using parallel::Policy;
using parallel::Precision;
using parallel::Sgd;
using parallel::ShardedDataParallel;
using parallel::Stage;
using parallel::Unit;
using test::error_of;
using test::run_thread_ranks;
using test::ShardedMesh;

const std::vector<Unit> kTwoUnits{{"first", {{"w", 60, 10}, {"b", 7, 7}}},
                                  {"second", {{"w", 33, 3}}}};
const std::vector<Policy> kPolicies{Policy::zero1(), Policy::zero2(), Policy::zero3(),
                                    Policy::fsdp()};

float start(std::size_t unit, std::size_t parameter, std::size_t i) {
  return static_cast<float>(i % 13) / 4 - static_cast<float>(unit) + static_cast<float>(parameter);
}
/// Of step `step`, the same on all ranks; whole quarters, so averages are exact.
float gradient(std::size_t step, std::size_t unit, std::size_t i) {
  return static_cast<float>((i * 5 + step * 3 + unit) % 11) / 4 - 1;
}

void load(ShardedDataParallel& model) {
  for (std::size_t u = 0; u < kTwoUnits.size(); ++u) {
    for (std::size_t p = 0; p < kTwoUnits[u].parameters.size(); ++p) {
      std::vector<float> values;
      for (std::size_t i = 0; i < kTwoUnits[u].parameters[p].count; ++i) {
        values.push_back(start(u, p, i));
      }
      model.load({u, p}, values.data());
    }
  }
  model.share_parameters();
}

void backward(ShardedDataParallel& model, std::size_t u,
              const std::function<float(std::size_t)>& gradient_of) {
  model.before_backward(u);
  for (std::size_t p = 0; p < kTwoUnits[u].parameters.size(); ++p) {
    auto* const memory = static_cast<float*>(model.gradient({u, p}));
    for (std::size_t i = 0; i < kTwoUnits[u].parameters[p].count; ++i) memory[i] += gradient_of(i);
  }
  model.after_backward(u);
}

/// A step. The second unit takes part in it only if `second` says so.
void train(ShardedDataParallel& model, std::size_t step, bool second, const Optimizer& optimizer) {
  for (std::size_t u = second ? 2 : 1; u-- > 0;) {
    backward(model, u, [&](std::size_t i) { return gradient(step, u, i); });
  }
  model.finish_backward();
  model.step(optimizer);
}

std::vector<std::vector<float>> parameters(ShardedDataParallel& model) {
  std::vector<std::vector<float>> all;
  for (std::size_t u = 0; u < kTwoUnits.size(); ++u) {
    std::vector<float> unit(model.layout(u).full());
    model.gather(u, ShardedDataParallel::Kept::parameters, unit.data());
    for (std::size_t p = 0; p < kTwoUnits[u].parameters.size(); ++p) {
      const float* const first = unit.data() + model.layout(u).offset(p);
      all.emplace_back(first, first + kTwoUnits[u].parameters[p].count);
    }
  }
  return all;
}

// As torch's AdamW has it: its averages begin at zero, and are corrected for that, for each
// parameter from its own first gradient on.
TEST(ShardedSteps, AreThoseOfTheParameter) {
  const AdamW adamw({.learning_rate = 0.01});
  for (const Policy& policy : kPolicies) {
    SCOPED_TRACE(policy.describe());
    run_thread_ranks(3, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      ShardedDataParallel model(kTwoUnits, policy, {.shard = &axis});
      load(model);
      constexpr std::size_t kSteps = 12, kFirst = 10;  // of the second unit
      std::vector<float> expected, m(33), v(33), made(33);
      for (std::size_t i = 0; i < 33; ++i) expected.push_back(start(1, 0, i));
      for (std::size_t step = 0; step < kSteps; ++step) {
        train(model, step, step >= kFirst, adamw);
        if (step < kFirst) continue;
        for (std::size_t i = 0; i < 33; ++i) {
          // As the ranks' reduction makes it.
          made[i] = gradient(step, 1, i) / 3 + gradient(step, 1, i) / 3 + gradient(step, 1, i) / 3;
        }
        adamw.update({.master = expected.data(),
                      .state = {m.data(), v.data()},
                      .gradient = made.data(),
                      .count = 33,
                      .step = step - kFirst + 1});
      }
      EXPECT_EQ(parameters(model)[2], expected);
      EXPECT_EQ(model.shard({0, 0}).steps, kSteps);  // also where a rank has no part of it
      EXPECT_EQ(model.shard({1, 0}).steps, kSteps - kFirst);
      EXPECT_EQ(model.steps(), kSteps);
    });
  }
}

// --- To go on
// --------------------------------------------------------------------------------------

struct Saved {
  std::vector<std::byte> numbers;  // master, and states
  std::uint64_t steps = 0;
};
constexpr std::size_t kBefore = 3, kAfter = 4;
bool has_second(std::size_t step) { return step % 2 == 1; }

std::vector<Saved> save_shards(const ShardedDataParallel& model) {
  std::vector<Saved> all;
  for (std::size_t u = 0; u < kTwoUnits.size(); ++u) {
    for (std::size_t p = 0; p < kTwoUnits[u].parameters.size(); ++p) {
      const auto shard = model.shard({u, p});
      Saved& saved = all.emplace_back();
      saved.steps = shard.steps;
      for (const void* from : {shard.master, shard.state[0], shard.state[1]}) {
        if (from == nullptr) continue;
        const auto* bytes = static_cast<const std::byte*>(from);
        saved.numbers.insert(saved.numbers.end(), bytes, bytes + shard.count * sizeof(float));
      }
    }
  }
  return all;
}

void load_shards(ShardedDataParallel& model, const std::vector<Saved>& all, bool values) {
  std::size_t next = 0;
  for (std::size_t u = 0; u < kTwoUnits.size(); ++u) {
    for (std::size_t p = 0; p < kTwoUnits[u].parameters.size(); ++p) {
      const Saved& saved = all[next++];
      model.set_steps({u, p}, saved.steps);
      const auto shard = model.shard({u, p});
      const std::byte* from = saved.numbers.data();
      for (void* to : {shard.master, shard.state[0], shard.state[1]}) {
        if (to == nullptr || !values) continue;
        std::memcpy(to, from, shard.count * sizeof(float));
        from += shard.count * sizeof(float);
      }
    }
  }
  model.share_parameters();
}

// A stop between two steps leaves no trace; of replicas the first alone reads what was saved.
TEST(ShardedResume, GoesOnWithTheSameBits) {
  std::vector<Policy> policies = kPolicies;
  for (Policy policy : kPolicies) {
    policy.precision = Precision::mixed();
    policy.precision.gradient = policy.precision.reduce = DataType::float32;
    policies.push_back(policy);
  }
  const AdamW adamw({.learning_rate = 0.01});
  const Sgd momentum({.momentum = 0.9});
  for (const Policy& policy : policies) {
    for (const Optimizer* optimizer :
         {static_cast<const Optimizer*>(&adamw), static_cast<const Optimizer*>(&momentum)}) {
      SCOPED_TRACE(policy.describe());
      run_thread_ranks(4, [&](Communicator& comm) {
        ShardedMesh mesh(comm, 2, 0);
        ShardedDataParallel whole(kTwoUnits, policy, mesh.axes());
        load(whole);
        std::vector<Saved> saved;
        for (std::size_t step = 0; step < kBefore + kAfter; ++step) {
          if (step == kBefore) saved = save_shards(whole);
          train(whole, step, has_second(step), *optimizer);
        }
        ShardedDataParallel resumed(kTwoUnits, policy, mesh.axes());
        resumed.prepare(*optimizer);
        load_shards(resumed, saved, comm.rank() < 2);
        for (std::size_t step = kBefore; step < kBefore + kAfter; ++step) {
          train(resumed, step, has_second(step), *optimizer);
        }
        const auto expected = save_shards(whole), got = save_shards(resumed);
        for (std::size_t p = 0; p < expected.size(); ++p) {
          EXPECT_EQ(got[p].steps, expected[p].steps) << p;
          EXPECT_TRUE(got[p].numbers == expected[p].numbers) << p;
        }
      });
    }
  }
}

// Two ranks save what they have of it together; others, of other numbers and policies, go on.
// semantics.md: E6
TEST(ShardedResume, GoesOnWithOtherNumbersOfRanks) {
  using Kept = ShardedDataParallel::Kept;
  const AdamW adamw({.learning_rate = 0.01});
  struct Whole {
    std::vector<std::vector<float>> of[3];
    std::vector<std::uint64_t> steps;
  };
  const auto save = [](ShardedDataParallel& model) {
    Whole whole;
    for (std::size_t u = 0; u < kTwoUnits.size(); ++u) {
      for (const Kept what : {Kept::parameters, Kept::first_state, Kept::second_state}) {
        std::vector<float> unit(model.layout(u).full());
        model.gather(u, what, unit.data());
        for (std::size_t p = 0; p < kTwoUnits[u].parameters.size(); ++p) {
          const float* const first = unit.data() + model.layout(u).offset(p);
          whole.of[static_cast<int>(what)].emplace_back(first,
                                                        first + kTwoUnits[u].parameters[p].count);
        }
      }
      for (std::size_t p = 0; p < kTwoUnits[u].parameters.size(); ++p) {
        whole.steps.push_back(model.shard({u, p}).steps);
      }
    }
    return whole;
  };
  Whole saved, expected;
  run_thread_ranks(2, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ShardedDataParallel model(kTwoUnits, Policy::zero3(), {.shard = &axis});
    load(model);
    for (std::size_t step = 0; step < kBefore + kAfter; ++step) {
      if (step == kBefore) {
        const Whole now = save(model);
        if (comm.rank() == 0) saved = now;
      }
      train(model, step, has_second(step), adamw);
    }
    const Whole now = save(model);
    if (comm.rank() == 1) expected = now;
  });
  for (const Policy& policy : kPolicies) {
    SCOPED_TRACE(policy.describe());
    for (const int ranks : {1, 4}) {
      run_thread_ranks(ranks, [&](Communicator& comm) {
        CommunicatorAxis axis(comm);
        ShardedDataParallel model(kTwoUnits, policy, {.shard = &axis});
        model.prepare(adamw);
        std::size_t next = 0;
        for (std::size_t u = 0; u < kTwoUnits.size(); ++u) {
          for (std::size_t p = 0; p < kTwoUnits[u].parameters.size(); ++p, ++next) {
            model.load({u, p}, saved.of[0][next].data());
            for (std::size_t i : {0u, 1u}) {
              model.load_state({u, p}, i, saved.of[i + 1][next].data());
            }
            model.set_steps({u, p}, saved.steps[next]);
          }
        }
        model.share_parameters();
        for (std::size_t step = kBefore; step < kBefore + kAfter; ++step) {
          train(model, step, has_second(step), adamw);
        }
        const Whole got = save(model);
        EXPECT_EQ(got.steps, expected.steps);
        for (int i = 0; i < 3; ++i) EXPECT_EQ(got.of[i], expected.of[i]) << i;
      });
    }
  }
}

// semantics.md: E6
TEST(ShardedResume, RanksThatGoOnFromDifferentStepsAreRefused) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ShardedDataParallel model(kTwoUnits, Policy::zero2(), {.shard = &axis});
    model.prepare(AdamW());
    model.set_steps({0, 1}, comm.rank() == 1 ? 6 : 7);
    const Error e = error_of([&] { load(model); });
    EXPECT_EQ(e.code(), ErrorCode::mismatch);
    EXPECT_EQ(e.rank(), 1);
    EXPECT_NE(std::string(e.what()).find("6 steps of parameter 'b' of unit 'first'"),
              std::string::npos)
        << e.what();
  });
}

TEST(ShardedResume, OfWhatThereIsNotIsRefused) {
  run_thread_ranks(1, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ShardedDataParallel model(kTwoUnits, Policy::zero2(), {.shard = &axis});
    std::vector<float> memory(100);
    const auto why = [](const auto& call) {
      const Error e = error_of(call);
      EXPECT_EQ(e.code(), ErrorCode::invalid_usage);
      return std::string(e.what());
    };
    EXPECT_EQ(model.shard({0, 0}).state[0], nullptr);
    EXPECT_NE(why([&] {
                model.load_state({0, 0}, 0, memory.data());
              }).find("prepare()"),
              std::string::npos);
    EXPECT_NE(why([&] {
                model.gather(0, ShardedDataParallel::Kept::first_state, memory.data());
              }).find("2 units and 0 states"),
              std::string::npos);
    model.prepare(Sgd({.momentum = 0.9}));
    EXPECT_NE(model.shard({0, 0}).state[0], nullptr);
    EXPECT_NE(why([&] { model.prepare(AdamW()); }).find("AdamW keeps 2 numbers"),
              std::string::npos);
    EXPECT_THROW(model.set_steps({2, 0}, 1), Error);
  });
}

// --- Gradients that are reduced several times in a step ------------------------------------------

// In stage 1, too, where they are reduced in the memory in which the next ones are made. With the
// other unit in between, by replicas, and by divisors; gradients are whole numbers.
TEST(ShardedReductions, OfOneUnitAreAddedUp) {
  for (Policy policy : kPolicies) {
    for (const unsigned divisor : {0u, 2u}) {
      for (const int replicas : {1, 2}) {
        policy.divide_by = divisor;
        SCOPED_TRACE(policy.describe());
        run_thread_ranks(4, [&](Communicator& comm) {
          ShardedMesh mesh(comm, replicas, 0);
          ShardedDataParallel model(kTwoUnits, policy, mesh.axes());
          load(model);
          const auto made = [&](std::size_t i, int use) {
            return static_cast<float>(static_cast<int>(i % 7) + 4 * comm.rank() + 16 * use);
          };
          // Of all ranks, 0 + 4 + 8 + 12 more than rank 0's alone.
          const auto sum = [&](std::size_t i, int use) {
            return static_cast<float>(4 * static_cast<int>(i % 7) + 24 + 64 * use);
          };
          const float by = divisor == 0 ? 4 : 2;
          for (int step = 0; step < 2; ++step) {
            backward(model, 0, [&](std::size_t i) { return made(i, 0); });
            backward(model, 1, [&](std::size_t i) { return made(i, 5); });
            backward(model, 0, [&](std::size_t i) { return made(i, 1); });
            model.synchronise(false);
            backward(model, 0, [&](std::size_t i) { return made(i, 2); });
            model.synchronise(true);
            backward(model, 0, [&](std::size_t i) { return made(i, 3); });
            model.finish_backward();
            for (std::size_t u : {0u, 1u}) {
              const auto shard = model.shard({u, 0});
              for (std::size_t i = 0; i < shard.count; ++i) {
                const std::size_t at = shard.begin + i;
                float expected = 0;
                if (u == 1) expected = sum(at, 5);
                for (int use = 0; u == 0 && use < 4; ++use) expected += sum(at, use);
                ASSERT_EQ(static_cast<const float*>(shard.gradient)[i], expected / by) << at;
              }
            }
            if (step == 0) model.discard_gradients();
          }
          model.step(Sgd({.learning_rate = 0.5}));
          EXPECT_EQ(parameters(model)[2][1], start(1, 0, 1) - 0.5f * sum(1, 5) / by);
        });
      }
    }
  }
}

}  // namespace
}  // namespace tutti
