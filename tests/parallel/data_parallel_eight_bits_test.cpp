// Gradients that travel in 8 bits: error feedback, equal bits on all ranks, numbers that are not
// finite.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
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
        // One rank's sums are not compressed; of two, the average's error stays.
        const double of_a_step = 1001.0 / 127;
        const double bound = of_a_step / kSteps + (ranks > 1 ? of_a_step : 0) + 1e-3;
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
