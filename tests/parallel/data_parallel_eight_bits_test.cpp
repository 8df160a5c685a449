// Gradients that travel in 8 bits: error feedback, equal bits on all ranks, numbers that are not
// finite.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "core/convert.h"
#include "parallel/data_parallel/data_parallel.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel {
namespace {

using test::run_thread_ranks;

/// Numbers up to 1, and 1000 in each block.
std::vector<float> gradient_of(int rank, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(rank + 7));
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> result(count);
  for (float& x : result) x = uniform(random);
  for (std::size_t i = 3; i < count; i += 16) result[i] = 1000;
  return result;
}

// In all steps together a rank sends all but one step's error. Without error feedback, small
// gradients beside a large one never arrive.
TEST(EightBits, SendLaterWhatTheyLeaveOut) {
  constexpr std::size_t kCount = 1000;
  constexpr int kSteps = 100;
  for (const int ranks : {1, 2}) {
    for (const bool feedback : {true, false}) {
      run_thread_ranks(ranks, [&](Communicator& comm) {
        CommunicatorAxis axis(comm);
        DataParallelPolicy policy;
        policy.eight_bits = EightBits{.error_feedback = feedback};
        DataParallel engine(axis, {{"w", {kCount}}}, policy);
        std::vector<std::vector<float>> all;
        for (int r = 0; r < ranks; ++r) all.push_back(gradient_of(r, kCount));
        std::vector<double> sent(kCount);
        for (int step = 0; step < kSteps; ++step) {
          std::ranges::copy(all[static_cast<std::size_t>(comm.rank())],
                            static_cast<float*>(engine.gradient(0)));
          engine.ready(0);
          (void)engine.finish();
          const auto* const w = static_cast<const float*>(engine.gradient(0));
          for (std::size_t i = 0; i < kCount; ++i) sent[i] += w[i];
        }
        // What is left out of the gradients, and of their average.
        const double bound = 2 * 1010.0 / 127 / kSteps + 1e-3;
        double worst = 0;
        for (std::size_t i = 0; i < kCount; ++i) {
          double average = 0;
          for (const auto& m : all) average += double{m[i]} / ranks;
          worst = std::max(worst, std::fabs(sent[i] / kSteps - average));
        }
        if (feedback) {
          EXPECT_LE(worst, bound) << ranks << " ranks";
        } else if (ranks > 1) {
          EXPECT_GT(worst, 0.9);  // what a gradient of nearly 1 loses
        } else {
          EXPECT_LE(worst, 1e-5);  // nothing travels
        }
      });
    }
  }
}

/// Gradients of step `step`: a large one in each block, and beside it small ones, constant or
/// random, that differ by rank and position.
std::vector<float> step_of(int rank, int step, std::size_t parameter, std::size_t count) {
  std::mt19937 random(static_cast<unsigned>(step * 64 + rank) * 8 +
                      static_cast<unsigned>(parameter));
  std::uniform_real_distribution<float> uniform(0, 0.05F);
  std::vector<float> result(count);
  for (std::size_t i = 0; i < count; ++i) {
    const float constant = 0.01F * static_cast<float>(1 + (i + static_cast<std::size_t>(rank)) % 5);
    result[i] = i % 3 == 0 ? constant : i % 3 == 1 ? -constant : uniform(random);
    if (i % 16 == 7) result[i] = rank % 2 == 0 ? 100 : 90;
  }
  return result;
}

/// All small gradients arrive in sum, but for what compressing leaves out of one step.
void expect_arrival(int ranks, DataType type) {
  constexpr int kSteps = 250;
  const std::vector<std::size_t> counts{1003, 5, 77, 1, 640};
  run_thread_ranks(ranks, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    DataParallelPolicy policy;
    policy.eight_bits = EightBits{};
    policy.first_bucket_bytes = 300;
    policy.bucket_bytes = 2000;
    std::vector<Parameter> parameters;
    for (const std::size_t count : counts) {
      parameters.push_back({"p" + std::to_string(parameters.size()), {count}, type});
    }
    DataParallel engine(axis, parameters, policy);
    std::vector<std::vector<double>> missing, rounding;
    for (const std::size_t count : counts) {
      missing.emplace_back(count), rounding.emplace_back(count);
    }
    int moves = 0;
    for (int step = 0; step < kSteps; ++step) {
      for (std::size_t p = 0; p < counts.size(); ++p) {
        for (int r = 0; r < ranks; ++r) {
          std::vector<float> values = step_of(r, step, p, counts[p]);
          std::vector<std::byte> stored(counts[p] * size_of(type));
          convert(values.data(), DataType::float32, stored.data(), type, counts[p]);
          if (r == comm.rank()) std::memcpy(engine.gradient(p), stored.data(), stored.size());
          convert(stored.data(), type, values.data(), DataType::float32, counts[p]);
          for (std::size_t i = 0; i < counts[p]; ++i) missing[p][i] += double{values[i]} / ranks;
        }
      }
      // In another order than the parameters', so that buckets are laid out anew.
      for (const std::size_t p : {2, 0, 4, 1, 3}) engine.ready(p);
      moves += engine.finish() ? 1 : 0;
      for (std::size_t p = 0; p < counts.size(); ++p) {
        std::vector<float> got(counts[p]);
        convert(engine.gradient(p), type, got.data(), DataType::float32, counts[p]);
        for (std::size_t i = 0; i < counts[p]; ++i) {
          missing[p][i] -= double{got[i]};
          rounding[p][i] += std::ldexp(std::fabs(double{got[i]}), -22);
        }
      }
    }
    EXPECT_EQ(moves, 1);
    EXPECT_GT(engine.statistics().buckets, 2U);
    // A rank's largest gradient is 100, and so is the largest average.
    const double bound = 2 * 101.0 / 127;
    for (std::size_t p = 0; p < counts.size(); ++p) {
      for (std::size_t i = 0; i < counts[p]; ++i) {
        ASSERT_LE(std::fabs(missing[p][i]), bound + rounding[p][i])
            << ranks << " ranks, " << name(type) << ", element " << i << " of parameter " << p;
      }
    }
  });
}

TEST(EightBits, SmallGradientsBesideALargeOneArriveInSum) {
  for (const int ranks : {2, 3, 4, 8}) expect_arrival(ranks, DataType::float32);
}

TEST(EightBits, SmallGradientsOfNarrowTypesArriveInSum) {
  for (const DataType type : {DataType::bfloat16, DataType::float16}) {
    expect_arrival(2, type);
    expect_arrival(3, type);
  }
}

TEST(EightBits, AGradientNearTheLimitOfFloat16StaysFinite) {
  constexpr float kLargest = 65504;
  run_thread_ranks(3, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    DataParallelPolicy policy;
    policy.eight_bits = EightBits{};
    DataParallel engine(axis, {{"w", {100}, DataType::float16}}, policy);
    for (int step = 0; step < 20; ++step) {
      const std::vector<float> mine(100, kLargest);
      convert(mine.data(), DataType::float32, engine.gradient(0), DataType::float16, mine.size());
      engine.ready(0);
      (void)engine.finish();
      ASSERT_TRUE(all_finite(engine.gradient(0), DataType::float16, 100)) << step;
    }
  });
}

TEST(EightBits, HaveTheSameBitsOnAllRanksAndForgetWhatIsNotFinite) {
  constexpr int kRanks = 3;
  run_thread_ranks(kRanks, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    for (const DataType type :
         {DataType::float16, DataType::bfloat16, DataType::float32, DataType::float64}) {
      DataParallelPolicy policy;
      policy.eight_bits = EightBits{};
      DataParallel engine(axis, {{"w", {777}, type}}, policy);
      const std::size_t bytes = 777 * size_of(type);
      std::vector<float> mine(777);
      for (int step = 0; step < 4; ++step) {
        for (std::size_t i = 0; i < mine.size(); ++i) {
          mine[i] = std::sin(static_cast<float>(i) + static_cast<float>(comm.rank()));
        }
        if (step == 1 && comm.rank() == 1) mine[5] = INFINITY;
        convert(mine.data(), DataType::float32, engine.gradient(0), type, mine.size());
        engine.ready(0);
        (void)engine.finish();
        EXPECT_EQ(all_finite(engine.gradient(0), type, mine.size()), step != 1) << name(type);
        std::vector<std::byte> all(kRanks * bytes);
        comm.all_gather(engine.gradient(0), all.data(), bytes, DataType::uint8);
        for (int r = 1; r < kRanks; ++r) {
          EXPECT_EQ(
              std::memcmp(all.data(), all.data() + static_cast<std::size_t>(r) * bytes, bytes), 0);
        }
      }
    }
  });
}

}  // namespace
}  // namespace tutti::parallel
