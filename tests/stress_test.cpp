// Collectives of mixed kinds and sizes back to back, on several communicators, with random delays:
// what the ordinary matrix, which waits after each call, would not find.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "core/memory.h"
#include "tests/thread_ranks.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

double stress_seconds() {
  const char* text = std::getenv("TUTTI_TEST_SECONDS");
  return text != nullptr ? std::atof(text) : 3;
}

/// All ranks draw the same plan from `same`; delays come from each rank's own generator.
void stress(Communicator& c, unsigned seed, Clock::time_point end) {
  std::mt19937 same(seed);
  std::mt19937 own(seed * 31 + static_cast<unsigned>(c.rank()));
  Communicator pairs = c.split(c.rank() / 2, c.rank());
  const auto n = static_cast<std::uint32_t>(c.size());
  const auto me = static_cast<std::uint32_t>(c.rank());
  constexpr std::size_t kMost = 1 << 17;
  std::vector<std::uint32_t> plain(2 * kMost * n), plain_out(2 * kMost * n);
  std::vector<std::uint32_t, Allocator<std::uint32_t>> window(2 * kMost * n),
      window_out(2 * kMost * n);
  for (std::uint32_t round = 1;; ++round) {
    // Rank 0 decides when to stop, so that all stop in the same round.
    std::uint32_t go = Clock::now() < end ? 1 : 0;
    if (round % 64 == 0) {
      c.broadcast(&go, &go, 1, DataType::uint32, 0);
      if (go == 0) return;
    }
    const std::size_t count = same() % (std::size_t{1} << (same() % 18)) + 1;
    const std::size_t shift = same() % 50;
    const int root = static_cast<int>(same() % n);
    const bool windows = same() % 2 == 0;
    std::uint32_t* in = (windows ? window.data() : plain.data()) + shift + me % 3;
    std::uint32_t* out = (windows ? window_out.data() : plain_out.data()) + shift;
    if (own() % 64 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 300));
    const auto value = [&](std::uint32_t rank, std::size_t i) {
      return round * 1000003U + rank * 7919U + static_cast<std::uint32_t>(i);
    };
    const auto sum = [&](std::size_t i) {
      std::uint32_t s = 0;
      for (std::uint32_t r = 0; r < n; ++r) s += value(r, i);
      return s;
    };
    for (std::size_t i = 0; i < count; ++i) in[i] = value(me, i);
    switch (same() % 6) {
      case 0:
        c.all_reduce(in, out, count, DataType::uint32);
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], sum(i)) << "round " << round;
        break;
      case 1:
        c.all_gather(in, out, count, DataType::uint32);
        for (std::uint32_t r = 0; r < n; ++r) {
          for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(out[r * count + i], value(r, i));
        }
        break;
      case 2:
        c.broadcast(in, out, count, DataType::uint32, root);
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(out[i], value(static_cast<std::uint32_t>(root), i));
        }
        break;
      case 3:
        c.reduce(in, out, count, DataType::uint32, {}, root);
        if (c.rank() == root) {
          for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], sum(i));
        }
        break;
      case 4: {
        const auto next = static_cast<int>((me + 1) % n);
        const auto previous = (me + n - 1) % n;
        group([&] {
          c.recv(out, count, DataType::uint32, static_cast<int>(previous));
          c.send(in, count, DataType::uint32, next);
        });
        for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(out[i], value(previous, i));
        break;
      }
      default: {
        pairs.all_reduce(in, out, count, DataType::uint32, ReduceKind::max);
        const std::uint32_t last = std::min(me / 2 * 2 + 1, n - 1);
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(out[i], std::max(value(me / 2 * 2, i), value(last, i)));
        }
      }
    }
  }
}

class Stress : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Stress, testing::Values(2, 3, 4));

TEST_P(Stress, MixedBackToBack) {
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(stress_seconds()));
  test::run_thread_ranks(GetParam(), [&](Communicator& c) { stress(c, 1234, end); });
}

}  // namespace
}  // namespace tutti
