// The data-parallel engine where ranks are not alike: gradients that are missing, ready twice or
// not finite, other parameters, less data. All ranks are told, by name, or go on with right
// averages.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "parallel/data_parallel/data_parallel.h"
#include "parallel_model.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel {
namespace {

using test::add_gradient;
using test::backward;
using test::error_of;
using test::kAllTypes;
using test::kFloat32;
using test::parameters_of;
using test::run_thread_ranks;
using test::shuffled;
using test::small_buckets;
using test::sum_of;
using test::values_at;
using test::wrong_average;

using Policy = DataParallelPolicy;

// The user's own way to average cannot be made on one rank: nobody waits for it.
TEST(DataParallel, ARefusalOfOneRankIsEverybodys) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Policy policy = small_buckets();
    policy.reduction = OwnReduction{"mine", [&](auto, auto&) -> std::unique_ptr<Reduction> {
                                      if (comm.rank() == 1) throw std::bad_alloc();
                                      return std::make_unique<Reduction>();
                                    }};
    const Error e = error_of([&] { DataParallel(axis, parameters_of(3, kFloat32), policy); });
    EXPECT_EQ(e.code(), ErrorCode::mismatch);
    EXPECT_EQ(e.rank(), 1);
    EXPECT_NE(std::string(e.what()).find("rank 1 was refused"), std::string::npos) << e.what();
  });
}

// semantics.md: E2
TEST(DataParallel, NamesMissingGradientsOnAllRanks) {
  constexpr int kRanks = 4;
  for (const bool power_sgd : {false, true}) {
    run_thread_ranks(kRanks, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      Policy policy = small_buckets();
      if (power_sgd) policy.power_sgd = PowerSgd{.rank = 2};
      DataParallel engine(axis, parameters_of(30, kFloat32), policy);
      for (std::uint64_t step = 0; step < 4; ++step) {
        engine.zero();
        const bool fails = step == 0 || step == 2;
        for (std::size_t i = 0; i < engine.size(); ++i) {
          if (fails && comm.rank() == 1 && (i == 3 || i == 29)) continue;
          if (fails && comm.rank() == 2 && i == 3) continue;
          if (i == 6) continue;  // it has no elements
          add_gradient(engine.parameter(i), i, comm.rank(), kRanks, step, engine.gradient(i));
          engine.ready(i);
        }
        if (!fails) {
          (void)engine.finish();
          if (!power_sgd) {
            EXPECT_EQ(wrong_average(engine, kRanks, {step}), "") << "step " << step;
          }
          for (std::size_t i = 0; i < engine.size(); ++i) {
            EXPECT_TRUE(
                all_finite(engine.gradient(i), DataType::float32, engine.parameter(i).count()));
          }
          continue;
        }
        const Error error = error_of([&] { (void)engine.finish(); });
        EXPECT_EQ(error.code(), ErrorCode::mismatch);
        EXPECT_EQ(error.rank(), 1);
        const std::string what = error.what();
        EXPECT_NE(what.find("w3 on ranks 1, 2; w29 on rank 1;"), std::string::npos) << what;
      }
    });
  }
}

TEST(DataParallel, AsksNobodyWhereNaNIsTheModels) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    DataParallel engine(axis, {{"w", {4}}});
    auto* const g = static_cast<float*>(engine.gradient(0));
    g[0] = comm.rank() == 1 ? std::numeric_limits<float>::quiet_NaN() : 1;
    engine.ready(0);
    EXPECT_FALSE(engine.finish());
    EXPECT_TRUE(std::isnan(g[0]));
  });
}

// semantics.md: E2
TEST(DataParallel, TakesMissingGradientsForZero) {
  constexpr int kRanks = 3;
  run_thread_ranks(kRanks, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Policy policy = small_buckets();
    policy.unused = Unused::zero_fill;
    DataParallel engine(axis, parameters_of(30, kAllTypes), policy);
    for (std::uint64_t step = 0; step < 3; ++step) {
      for (const std::size_t i : shuffled(engine.size(), static_cast<std::uint64_t>(comm.rank()))) {
        // What is missing is not what happens to be in memory.
        add_gradient(engine.parameter(i), i, comm.rank(), kRanks, step, engine.gradient(i));
        if (i % 3 == static_cast<std::size_t>(comm.rank()) || i == 5) continue;
        engine.ready(i);
      }
      EXPECT_EQ(engine.finish(), step == 0);
      for (std::size_t i = 0; i < engine.size(); ++i) {
        std::vector<float> expected(engine.parameter(i).count());
        for (std::size_t k = 0; k < expected.size(); ++k) {
          for (int r = 0; r < kRanks; ++r) {
            if (i % 3 == static_cast<std::size_t>(r) || i == 5) continue;
            expected[k] += static_cast<float>(test::part(r, step, i, k));
          }
        }
        EXPECT_EQ(values_at(engine.parameter(i), engine.gradient(i)), expected) << i;
      }
    }
  });
}

TEST(DataParallel, KeepsWhatAnEarlierMicroBatchHasAdded) {
  constexpr int kRanks = 2;
  for (const Unused unused : {Unused::error, Unused::zero_fill}) {
    run_thread_ranks(kRanks, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      Policy policy = small_buckets();
      policy.unused = unused;
      DataParallel engine(axis, parameters_of(20, kFloat32), policy);
      engine.zero();
      {
        const auto no_sync = engine.no_sync();
        backward(engine, comm.rank(), kRanks, 0);
        EXPECT_FALSE(engine.finish());
      }
      for (std::size_t i = 0; i < engine.size(); i += 2) {  // the others are not used this time
        add_gradient(engine.parameter(i), i, comm.rank(), kRanks, 1, engine.gradient(i), false);
        engine.ready(i);
      }
      (void)engine.finish();
      for (std::size_t i = 0; i < engine.size(); ++i) {
        const std::vector<std::uint64_t> steps =
            i % 2 == 0 ? std::vector<std::uint64_t>{0, 1} : std::vector<std::uint64_t>{0};
        EXPECT_EQ(values_at(engine.parameter(i), engine.gradient(i)),
                  sum_of(engine.parameter(i), i, kRanks, steps));
      }
    });
  }
}

// Rank 1 adds up more backwards than the others, which add up none, or fewer.
TEST(DataParallel, NoSyncOnSomeRanksOnlyIsRefusedByAll) {
  constexpr int kRanks = 3;
  for (const bool uneven_inputs : {false, true}) {
    for (const bool overlap : {true, false}) {
      for (const int of_others : {0, 1, 2}) {
        run_thread_ranks(kRanks, [&](Communicator& comm) {
          CommunicatorAxis axis(comm);
          Policy policy = small_buckets();
          policy.uneven_inputs = uneven_inputs;
          policy.overlap = overlap;
          DataParallel engine(axis, parameters_of(20, kFloat32), policy);
          const auto step = [&](int unsynchronised) {
            engine.zero();
            for (int i = 0; i < unsynchronised; ++i) {
              const auto no_sync = engine.no_sync();
              backward(engine, comm.rank(), kRanks, 0, i == 0);
              (void)engine.finish();
            }
            backward(engine, comm.rank(), kRanks, 0, unsynchronised == 0);
            (void)engine.finish();
          };
          step(0);
          step(2);
          const Error error = error_of([&] { step(comm.rank() == 1 ? 3 : of_others); });
          EXPECT_EQ(error.code(), ErrorCode::mismatch);
          EXPECT_NE(std::string(error.what()).find("no_sync() holds on some"), std::string::npos)
              << error.what();
          if (of_others == 0 && !uneven_inputs) return;  // calls did not match: the axis has failed
          EXPECT_EQ(error.rank(), 1);
          step(1);  // the next one is good
          EXPECT_EQ(wrong_average(engine, kRanks, {0, 0}), "");
        });
      }
    }
  }
}

// More than a byte counts.
TEST(DataParallel, ManyMoreMicroBatchesOnOneRankAreRefusedByAll) {
  run_thread_ranks(2, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    DataParallel engine(axis, parameters_of(3, kFloat32), small_buckets());
    const int unsynchronised = comm.rank() == 1 ? 259 : 299;
    for (int i = 0; i < unsynchronised; ++i) {
      const auto no_sync = engine.no_sync();
      backward(engine, comm.rank(), 2, 0, i == 0);
      (void)engine.finish();
    }
    backward(engine, comm.rank(), 2, 0, false);
    const Error error = error_of([&] { (void)engine.finish(); });
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
    EXPECT_NE(std::string(error.what())
                  .find("rank 1 has had 260 backward(s) since the last "
                        "average, and another rank 300"),
              std::string::npos)
        << error.what();
  });
}

TEST(DataParallel, GradientsThatNoMemoryHoldsAreRefusedOnAllRanks) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    const Error error = error_of([&] {
      DataParallel(axis, {{"w", {std::size_t{1} << 40}, DataType::float32}});
    });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what())
                  .find("data parallel (all gradients) needs 8 TiB on the host of ranks 0 to 1"),
              std::string::npos)
        << error.what();
  });
}

TEST(DataParallel, RefusesASecondTimeAndWhatIsNotThere) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    DataParallel engine(axis, parameters_of(5, kFloat32), small_buckets());
    engine.ready(2);
    const Error twice = error_of([&] { engine.ready(2); });
    EXPECT_EQ(twice.code(), ErrorCode::invalid_usage);
    EXPECT_NE(std::string(twice.what()).find("w2 (2)"), std::string::npos) << twice.what();
    EXPECT_EQ(error_of([&] { engine.ready(5); }).code(), ErrorCode::invalid_argument);
    for (const std::size_t i : {0u, 1u, 3u, 4u}) engine.ready(i);
    (void)engine.finish();  // nothing has come of it
    for (std::size_t i = 0; i < 5; ++i) engine.ready(i);
    (void)engine.finish();
    EXPECT_EQ(error_of([&] { engine.join(); }).code(), ErrorCode::invalid_usage);
  });
}

TEST(DataParallel, IsTheSameOnAllRanksOrRefused) {
  struct Case {
    std::function<void(std::vector<Parameter>&, Policy&)> change;  // of rank 2
    std::string says;
  };
  const std::vector<Case> cases{
      {[](auto& p, auto&) { p.pop_back(); }, "rank 2 has \"nothing more\" where rank 0 has \"w4"},
      {[](auto& p, auto&) {
         p[1].shape = {38, 7};
       },
       "rank 2 has \"w1: float32 [38, 7]\" where rank 0 has \"w1: float32 [38, 6]\""},
      {[](auto& p, auto&) { p[3].type = DataType::float16; },
       "rank 2 has \"w3: float16 [51, 2]\" where rank 0 has \"w3: float32 [51, 2]\""},
      {[](auto& p, auto&) { std::swap(p[0], p[1]); }, "rank 2 has \"w1: float32"},
      {[](auto&, auto& policy) { policy.bucket_bytes = 7; }, "buckets of 1048576 and 7 B"},
      {[](auto&, auto& policy) { policy.power_sgd = PowerSgd{}; }, "PowerSGD of rank 1"},
      {[](auto&, auto& policy) { policy.eight_bits = EightBits{}; }, "8 bits with error feedback"},
      {[](auto&, auto& policy) { policy.unused = Unused::zero_fill; }, "unused zero_fill"},
  };
  run_thread_ranks(3, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    for (const Case& c : cases) {
      std::vector<Parameter> parameters = parameters_of(5, kFloat32);
      Policy policy;
      if (comm.rank() == 2) c.change(parameters, policy);
      const Error error = error_of([&] { DataParallel(axis, parameters, policy); });
      EXPECT_EQ(error.code(), ErrorCode::mismatch);
      EXPECT_EQ(error.rank(), 2);
      EXPECT_NE(std::string(error.what()).find(c.says), std::string::npos) << error.what();
    }
    // What no rank may have.
    EXPECT_EQ(error_of([&] {
                DataParallel(axis, {{"i", {3}, DataType::int32}});
              }).code(),
              ErrorCode::invalid_argument);
    EXPECT_EQ(error_of([&] { DataParallel(axis, {}, {.bucket_bytes = 0}); }).code(),
              ErrorCode::invalid_argument);
    EXPECT_EQ(error_of([&] { DataParallel(axis, {}, {.reduce_type = DataType::int8}); }).code(),
              ErrorCode::invalid_argument);
    // Products that are no numbers of elements.
    for (const std::vector<std::size_t>& shape :
         {std::vector<std::size_t>{1ull << 32, 1ull << 32}, {1ull << 62}}) {
      EXPECT_EQ(error_of([&] {
                  DataParallel(axis, {{"huge", shape}});
                }).code(),
                ErrorCode::invalid_argument);
    }
    DataParallel nothing(axis, {});
    EXPECT_FALSE(nothing.finish());
    DataParallel one(axis, {{"w", {4}}});
    void* const null[] = {nullptr};
    const Error error = error_of([&] { one.broadcast_parameters(null); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find("pointer to w"), std::string::npos) << error.what();
  });
}

TEST(DataParallel, NamesGradientsThatAreNotFinite) {
  constexpr int kRanks = 3;
  run_thread_ranks(kRanks, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Policy policy = small_buckets();
    policy.check_finite = true;
    policy.reduce_type = DataType::float16;
    DataParallel engine(axis, parameters_of(20, kFloat32), policy);
    for (std::uint64_t step = 0; step < 4; ++step) {
      for (std::size_t i = 0; i < engine.size(); ++i) {
        add_gradient(engine.parameter(i), i, comm.rank(), kRanks, step, engine.gradient(i));
        auto* const g = static_cast<float*>(engine.gradient(i));
        if (step == 1 && comm.rank() == 2 && i == 9) g[1] = -std::numeric_limits<float>::infinity();
        if (step == 2 && i == 4) g[0] = 60000.0f * kRanks;  // an average that float16 lacks
        engine.ready(i);
      }
      const Error error = error_of([&] { (void)engine.finish(); });
      if (step == 1 || step == 2) {
        const std::string says = step == 1 ? "the gradient of w9 is not finite on rank 2"
                                           : "the average of the gradients of w4";
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_EQ(error.rank(), step == 1 ? 2 : -1);
        EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
      } else {
        EXPECT_EQ(error.code(), ErrorCode{}) << error.what();
        EXPECT_EQ(wrong_average(engine, kRanks, {step}), "") << "finite";
      }
    }
  });
}

TEST(DataParallel, GoesOnWithoutTheRanksThatHaveNoDataLeft) {
  constexpr int kRanks = 4;
  run_thread_ranks(kRanks, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Policy policy = small_buckets();
    policy.uneven_inputs = true;
    DataParallel engine(axis, parameters_of(20, kAllTypes), policy);
    // Rank r has this many batches; rank 0 none at all in the first epoch, which learns the order.
    const std::vector<std::vector<std::uint64_t>> batches{{0, 3, 1, 5}, {2, 2, 4, 2}, {1, 0, 0, 0}};
    for (const auto& epoch : batches) {
      const auto most = *std::ranges::max_element(epoch);
      const auto expect_step = [&](std::uint64_t step) {
        std::vector<int> active;
        for (int r = 0; r < kRanks; ++r) {
          if (epoch[static_cast<std::size_t>(r)] > step) active.push_back(r);
        }
        for (std::size_t i = 0; i < engine.size(); ++i) {
          std::vector<float> expected(engine.parameter(i).count());
          for (std::size_t k = 0; k < expected.size(); ++k) {
            for (const int r : active) {
              expected[k] += static_cast<float>(test::part(r, step, i, k));
            }
          }
          EXPECT_EQ(values_at(engine.parameter(i), engine.gradient(i)), expected)
              << "step " << step << ", parameter " << i;
        }
      };
      std::uint64_t step = 0;
      for (; step < epoch[static_cast<std::size_t>(comm.rank())]; ++step) {
        const auto active = std::ranges::count_if(epoch, [&](auto n) { return n > step; });
        backward(engine, comm.rank(), static_cast<int>(active), step);
        (void)engine.finish();
        expect_step(step);
      }
      engine.join([&] { expect_step(step++); });
      EXPECT_EQ(step, most);
    }
  });
}

// Any number of backwards is data, also one of which a byte is 0.
TEST(DataParallel, TheFirstRankWithDataHasHadAnyNumberOfBackwards) {
  for (const int backwards : {1, 255, 256, 512, 65'536}) {
    run_thread_ranks(3, [&](Communicator& comm) {
      CommunicatorAxis axis(comm);
      Policy policy;
      policy.uneven_inputs = true;
      DataParallel engine(axis, {{"w", {4}}}, policy);
      int steps = 0;
      const auto expect_rank_1 = [&] {
        EXPECT_EQ(engine.first_with_data(), 1) << backwards << " backwards, rank " << comm.rank();
        ++steps;
      };
      if (comm.rank() > 0) {
        for (int i = 1; i < backwards; ++i) {
          const auto accumulates = engine.no_sync();
          engine.ready(0);
          (void)engine.finish();
        }
        engine.ready(0);
        (void)engine.finish();
        expect_rank_1();
      }
      engine.join(expect_rank_1);
      EXPECT_EQ(steps, 1);
    });
  }
}

}  // namespace
}  // namespace tutti::parallel
