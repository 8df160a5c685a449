// group() across communicators: whose time-out counts, how the wait is spent, and what becomes of a
// communicator that is destroyed while a group has its calls.
#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <latch>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::error_of;

/// Rank r of each of two communicators, as one thread has them.
struct Pair {
  std::vector<Communicator> a, b;
};

Pair two_communicators(const Options& a, const Options& b) {
  return {Communicator::create_local(2, a), Communicator::create_local(2, b)};
}

/// A value in every rank's own way.
std::int64_t rank_value(int rank, std::size_t i) {
  return 1000 * (rank + 1) + static_cast<std::int64_t>(i);
}

std::vector<std::int64_t> inputs(int rank, std::size_t count) {
  std::vector<std::int64_t> in(count);
  for (std::size_t i = 0; i < count; ++i) in[i] = rank_value(rank, i);
  return in;
}

// Whichever of them lies where in memory.
TEST(GroupOfTwoCommunicators, EachHasItsOwnTimeout) {
  Options strict;
  strict.timeout = 200ms;
  Options patient;
  patient.timeout = 20s;
  for (const bool strict_is_lower : {true, false}) {
    std::vector<Pair> pairs;  // kept, so that the next ones lie elsewhere
    const auto fits = [&](const Pair& p) {
      return (&p.a[0].impl() < &p.b[0].impl()) == strict_is_lower;
    };
    do {
      pairs.push_back(two_communicators(strict, patient));
      if (!fits(pairs.back())) {
        Pair other = two_communicators(patient, strict);
        pairs.push_back({std::move(other.b), std::move(other.a)});
      }
    } while (!fits(pairs.back()) && pairs.size() < 100);
    Pair& pair = pairs.back();
    ASSERT_TRUE(fits(pair));
    std::int32_t x = 1, y = 1;
    // Rank 1 does not come.
    const Error e = error_of([&] {
      group([&] {
        pair.a[0].all_reduce(&x, &x, 1, DataType::int32);
        pair.b[0].all_reduce(&y, &y, 1, DataType::int32);
      });
    });
    EXPECT_EQ(e.code(), ErrorCode::timed_out) << e.what();
    EXPECT_NE(std::string(e.what()).find("timeout of 0.2 s"), std::string::npos) << e.what();
  }
}

std::chrono::nanoseconds processor_time() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

TEST(GroupOfTwoCommunicators, SleepsWhileItWaits) {
  Pair pair = two_communicators({}, {});
  std::jthread late([&] {
    std::this_thread::sleep_for(1s);
    std::int32_t x = 1, y = 2;
    // In an order of its own: either doorbell must wake the other one.
    pair.b[1].all_reduce(&y, &y, 1, DataType::int32);
    pair.a[1].all_reduce(&x, &x, 1, DataType::int32);
    EXPECT_EQ(x, 11);
    EXPECT_EQ(y, 22);
  });
  std::int32_t x = 10, y = 20;
  const auto begun = processor_time();
  group([&] {
    pair.a[0].all_reduce(&x, &x, 1, DataType::int32);
    pair.b[0].all_reduce(&y, &y, 1, DataType::int32);
  });
  EXPECT_LT(processor_time() - begun, 400ms);
  EXPECT_EQ(x, 11);
  EXPECT_EQ(y, 22);
}

TEST(Group, RunsTheCallsOfACommunicatorThatIsDestroyedInIt) {
  constexpr std::size_t kCount = 3000;
  for (const bool by_destructor : {true, false}) {
    std::vector<Communicator> comms = Communicator::create_local(3);
    std::vector<std::jthread> threads;
    for (int r = 0; r < 3; ++r) {
      threads.emplace_back([&, r] {
        Communicator comm = std::move(comms[static_cast<std::size_t>(r)]);
        const std::vector<std::int64_t> in = inputs(r, kCount);
        std::vector<std::int64_t> out(kCount), received(kCount);
        group([&] {
          comm.all_reduce(in.data(), out.data(), kCount, DataType::int64);
          comm.send(in.data(), kCount, DataType::int64, (r + 1) % 3);
          comm.recv(received.data(), kCount, DataType::int64, (r + 2) % 3);
          if (by_destructor) {
            Communicator().operator=(std::move(comm));
          } else {
            comm.destroy();
          }
        });
        EXPECT_FALSE(comm);
        EXPECT_EQ(received, inputs((r + 2) % 3, kCount));
        for (std::size_t i = 0; i < kCount; ++i) {
          ASSERT_EQ(out[i], rank_value(0, i) + rank_value(1, i) + rank_value(2, i));
        }
      });
    }
  }
}

TEST(Group, ThatIsDroppedLetsADestroyedCommunicatorGo) {
  std::vector<Communicator> comms = Communicator::create_local(2);
  const Error e = error_of([&] {
    group([&] {
      std::int32_t x = 1;
      comms[0].all_reduce(&x, &x, 1, DataType::int32);
      comms[0].destroy();
      throw Error(ErrorCode::invalid_usage, "the body's own");
    });
  });
  EXPECT_STREQ(e.what(), "the body's own");
  // It has left, so a rank that waits for it hears that.
  const Error left = error_of([&] { comms[1].barrier(); });
  EXPECT_EQ(left.code(), ErrorCode::peer_lost) << left.what();
}

}  // namespace
}  // namespace tutti
