// Calls of every kind back to back, on several communicators that come and go, with memory that
// comes and goes, by ranks that drift apart: what the ordinary matrix, which waits after each call,
// would not find. These are thread ranks; tests/comm/stress_rank.cpp does the same in
// processes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <vector>

#include "tests/comm/random_calls.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

double stress_seconds() {
  const char* text = std::getenv("TUTTI_TEST_SECONDS");
  return text != nullptr ? std::atof(text) : 2;
}

class Stress : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Stress, testing::Values(2, 3, 4));

TEST_P(Stress, MixedBackToBack) {
  const unsigned seed = test::stress_seed();
  fmt::print("TUTTI_TEST_SEED={}\n", seed);
  test::run_thread_ranks(GetParam(), [&](Communicator& c) {
    test::make_random_calls(c, seed, test::MemoryUse::any, stress_seconds());
  });
}

/// Which communicator is started first does not matter.
TEST(TwoCommunicators, ProgressTogether) {
  test::run_thread_ranks(3, [](Communicator& c) {
    Communicator other = c.split(0, -c.rank());
    for (std::uint32_t round = 0; round < 300; ++round) {
      const std::size_t count = 1 + round * 97 % 20'000;
      const auto value = [&](int rank, std::uint32_t i) {
        return 1'000'003U * round + 40'009U * static_cast<std::uint32_t>(rank) + i;
      };
      std::vector<std::uint32_t> a(count), b(count);
      for (std::uint32_t i = 0; i < count; ++i) a[i] = b[i] = value(c.rank(), i);
      const Call of_c{.collective = Collective::all_reduce,
                      .in = a.data(),
                      .out = a.data(),
                      .count = count,
                      .type = DataType::uint32};
      const Call of_other{.collective = Collective::broadcast,
                          .in = b.data(),
                          .out = b.data(),
                          .count = count,
                          .type = DataType::uint32,
                          .root = 2};
      Future first, second;
      const bool turned = (static_cast<unsigned>(c.rank()) + round) % 2 == 0;
      if (turned) second = other.start(of_other);
      first = c.start(of_c);
      if (!turned) second = other.start(of_other);
      // The one is waited for while the other has perhaps not begun elsewhere.
      (round % 3 == 0 ? first : second).wait();
      (round % 3 == 0 ? second : first).wait();
      for (std::uint32_t i = 0; i < count; ++i) {
        ASSERT_EQ(a[i], value(0, i) + value(1, i) + value(2, i)) << "round " << round;
        ASSERT_EQ(b[i], value(0, i)) << "round " << round;  // rank 0 is the other's rank 2
      }
    }
  });
}

}  // namespace
}  // namespace tutti
