// What is started and not waited for: one thread of each rank runs it, for all communicators of
// that rank, which do not hold each other up. The ranks are threads, once as they are and once as
// if they were processes.
#include "tests/comm/started.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <latch>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "tests/comm/number_calls.h"
#include "tests/support/processes.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using test::all_reduce;
using test::barrier;
using test::broadcast;
using test::engine_threads;
using test::Numbers;
using test::parts_of;
using test::receive;
using test::run_thread_ranks;
using test::send;

class Started : public test::TogetherOrApart {};
INSTANTIATE_TEST_SUITE_P(Ranks, Started, testing::Bool(), test::together_or_apart);

// --- Order ---------------------------------------------------------------------------------------

TEST_P(Started, CollectivesKeepTheOrderOfTheCalls) {
  run_thread_ranks(3, [](Communicator& c) {
    // Each call works on what the one before has left, and they differ in shape.
    Numbers x(700, c.rank() + 1);
    Numbers part(x.begin(), x.begin() + 10);
    std::vector<Future> futures;
    std::int64_t expected = 1;
    for (int i = 0; i < 30; ++i) {
      if (i % 3 == 2) {
        futures.push_back(c.start({.collective = Collective::all_reduce,
                                   .in = x.data(),
                                   .out = x.data(),
                                   .count = x.size(),
                                   .type = DataType::int64,
                                   .op = ReduceKind::max}));
      } else if (i % 3 == 1) {
        futures.push_back(c.start(broadcast(x, i % c.size())));
      } else {
        futures.push_back(c.start(all_reduce(x)));
        expected = i == 0 ? 6 : 3 * expected;
      }
    }
    futures.back().wait();
    for (const Future& f : futures) EXPECT_TRUE(f.ready());
    EXPECT_EQ(x, Numbers(x.size(), expected));
  });
}

TEST_P(Started, UnevenCollectivesKeepTheirCounts) {
  run_thread_ranks(3, [](Communicator& c) {
    std::vector<Numbers> all(20);
    std::vector<Future> futures;
    for (std::size_t i = 0; i < all.size(); ++i) {
      // Of the caller's counts nothing is left when the call runs.
      const std::vector<std::size_t> counts{i, 2 * i + 1, 5};
      const std::size_t before = c.rank() == 0 ? 0 : c.rank() == 1 ? i : 3 * i + 1;
      const std::size_t mine = counts[static_cast<std::size_t>(c.rank())];
      all[i].resize(3 * i + 6);
      std::fill_n(all[i].begin() + static_cast<std::ptrdiff_t>(before), mine, 10 + c.rank());
      futures.push_back(c.start({.collective = Collective::all_gather_v,
                                 .in = all[i].data() + before,
                                 .out = all[i].data(),
                                 .type = DataType::int64,
                                 .out_counts = counts}));
    }
    for (std::size_t i = 0; i < all.size(); ++i) {
      futures[i].wait();
      Numbers expected(i, 10);
      expected.insert(expected.end(), 2 * i + 1, 11);
      expected.insert(expected.end(), 5, 12);
      EXPECT_EQ(all[i], expected);
    }
  });
}

TEST_P(Started, MessagesOfAPairMatchInOrder) {
  constexpr std::size_t kCount = 30'000;  // more than the slots hold
  run_thread_ranks(2, [&](Communicator& c) {
    const int peer = 1 - c.rank();
    std::vector<Numbers> in, out;
    std::vector<Future> futures;
    for (int i = 0; i < 8; ++i) {
      in.emplace_back(kCount, 100 * c.rank() + i);
      out.emplace_back(kCount, -1);
    }
    // All sends first: they need no receive of this rank's.
    for (Numbers& x : in) futures.push_back(c.start(send(x, peer)));
    for (Numbers& x : out) futures.push_back(c.start(receive(x, peer)));
    for (Future& f : futures) f.wait();
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(out[static_cast<std::size_t>(i)], Numbers(kCount, 100 * peer + i));
    }
  });
}

TEST_P(Started, MessagesOvertakeThoseOfOthersAndCollectives) {
  std::latch others_are_done(1);
  run_thread_ranks(3, [&](Communicator& c) {
    if (c.rank() == 2) {
      others_are_done.wait();
      Numbers x{22};
      c.start(send(x, 0)).wait();
      return c.barrier();
    }
    Numbers late{0}, early{0};
    if (c.rank() == 0) {
      Future of_2 = c.start(receive(late, 2));
      Future all = c.start(barrier);
      Future of_1 = c.start(receive(early, 1));
      of_1.wait();
      EXPECT_EQ(early, Numbers{11});
      EXPECT_FALSE(of_2.ready());
      EXPECT_FALSE(all.ready());
      others_are_done.count_down();
      all.wait();
      of_2.wait();
      EXPECT_EQ(late, Numbers{22});
    } else {
      Numbers x{11};
      c.send(x.data(), 1, DataType::int64, 0);
      c.barrier();
    }
  });
}

TEST_P(Started, ABlockingCallDoesNotWaitForWhatIsStarted) {
  std::latch blocking_is_done(1);
  run_thread_ranks(2, [&](Communicator& c) {
    Communicator other = c.split(0, c.rank());
    Numbers x{1}, y{1}, got{0};
    if (c.rank() == 1) {
      other.run(all_reduce(y));
      c.run(all_reduce(x));
      blocking_is_done.wait();
      x = {1};
      c.send(x.data(), 1, DataType::int64, 0);
      return;
    }
    Future f = c.start(receive(got, 1));
    other.run(all_reduce(y));
    EXPECT_EQ(y, Numbers{2});
    c.run(all_reduce(x));
    EXPECT_EQ(x, Numbers{2});
    EXPECT_FALSE(f.ready());
    blocking_is_done.count_down();
    f.wait();
    EXPECT_EQ(got, Numbers{1});
  });
}

// --- Several communicators -----------------------------------------------------------------------

TEST_P(Started, RanksStartInWhateverOrder) {
  constexpr int kRanks = 3;
  run_thread_ranks(kRanks, [](Communicator& c) {
    std::vector<Communicator> parts = parts_of(c, 5);
    for (int round = 0; round < 20; ++round) {
      std::vector<Numbers> x(parts.size());
      std::vector<Future> futures(parts.size());
      for (std::size_t k = 0; k < parts.size(); ++k) {
        // Of different sizes, so that they take differently long.
        const std::size_t turned = (k + static_cast<std::size_t>(2 * c.rank() + round)) % x.size();
        const std::size_t at = c.rank() % 2 == 0 ? turned : x.size() - 1 - turned;
        x[at].assign(1 + 20'000 * (at % 3), c.rank() + static_cast<int>(at));
        futures[at] = parts[at].start(all_reduce(x[at]));
      }
      for (std::size_t k = 0; k < parts.size(); ++k) {
        futures[k].wait();
        const auto sum = static_cast<std::int64_t>(3 + kRanks * k);
        ASSERT_EQ(x[k], Numbers(x[k].size(), sum)) << "round " << round;
      }
    }
  });
}

TEST_P(Started, WhatWaitsInOneDoesNotHoldUpAnother) {
  std::latch others_are_done(2);
  run_thread_ranks(2, [&](Communicator& c) {
    Communicator held = c.split(0, c.rank());
    std::optional<Future> waits;
    if (c.rank() == 0) waits = held.start(barrier);
    for (int i = 0; i < 100; ++i) {
      Numbers x(static_cast<std::size_t>(1 + 100 * i), 1);
      c.start(all_reduce(x)).wait();
      ASSERT_EQ(x, Numbers(x.size(), 2));
    }
    if (waits) {
      EXPECT_FALSE(waits->ready());
    }
    others_are_done.arrive_and_wait();
    if (c.rank() == 1) waits = held.start(barrier);
    waits->wait();
  });
}

TEST_P(Started, OneThreadServesAllCommunicatorsOfARank) {
  std::latch all_have_started(2), counted(1);
  EXPECT_EQ(engine_threads(), 0);
  run_thread_ranks(2, [&](Communicator& c) {
    std::vector<Communicator> parts = parts_of(c, 3);
    parts.push_back(parts[0].split(0, -c.rank()));
    parts.push_back(parts[3].shrink({}));
    for (Communicator& part : parts) {
      Numbers x{1};
      part.start(all_reduce(x)).wait();
      EXPECT_EQ(x, Numbers{2});
    }
    all_have_started.arrive_and_wait();
    if (c.rank() == 0) {
      // One of each rank. A call may end before the thread that it started has its name.
      EXPECT_TRUE(eventually([] { return engine_threads() == 2; })) << engine_threads();
      counted.count_down();
    }
    counted.wait();
    // It goes with the last one that has needed it, and comes again.
    parts.clear();
    Numbers x{1};
    c.start(all_reduce(x)).wait();
    EXPECT_EQ(x, Numbers{2});
  });
  EXPECT_EQ(engine_threads(), 0);
}

TEST_P(Started, WakesTheEngineWhereverItSleeps) {
  constexpr int kTries = 60;
  std::latch all_have_waited(2);
  run_thread_ranks(2, [&](Communicator& c) {
    // What each waits for comes at the end.
    Communicator held = c.split(0, c.rank());
    Numbers late{0};
    Future waits = held.start(receive(late, 1 - c.rank()));
    std::vector<Clock::duration> took;
    for (int i = 0; i < kTries; ++i) {
      // It spins and yields for 2 ms, then sleeps again and again: begin anywhere in that.
      std::this_thread::sleep_for(4ms + i * 377 % 1000 * 1us);
      Numbers x{1};
      c.barrier();
      const auto begin = Clock::now();
      c.start(all_reduce(x)).wait();
      took.push_back(Clock::now() - begin);
    }
    EXPECT_FALSE(waits.ready());
    all_have_waited.arrive_and_wait();
    Numbers x{1};
    held.start(send(x, 1 - c.rank())).wait();
    waits.wait();
    EXPECT_EQ(late, Numbers{1});
    // A rank that is not woken sleeps for up to a millisecond: both ranks would be awake within a
    // quarter of that in one of 16 tries.
    std::ranges::sort(took);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LT(took[kTries / 2], 250us);
#endif
  });
}

// --- Who runs them -------------------------------------------------------------------------------

/// How often this thread has slept.
long sleeps() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

/// Calls whose caller waits at once. Then the engine's thread leaves calls to it.
void call_and_wait(Communicator& c, int calls) {
  for (int i = 0; i < calls; ++i) {
    Numbers x{c.rank() + i};
    c.start(all_reduce(x)).wait();
    ASSERT_EQ(x, Numbers{2 * i + 1});
  }
}

TEST_P(Started, WhoWaitsRunsTheCall) {
  constexpr int kCalls = 1000;
  run_thread_ranks(2, [&](Communicator& c) {
    const long before = sleeps();
    call_and_wait(c, kCalls);
    // Where the engine's thread runs them, it sleeps in nearly all.
    EXPECT_LT(sleeps() - before, kCalls / 2);
  });
}

TEST_P(Started, WhatNobodyWaitsForIsRunAllTheSame) {
  std::atomic<int> over{0};
  run_thread_ranks(2, [&](Communicator& c) {
    Communicator other = c.split(0, c.rank());
    for (int round = 1; round <= 20; ++round) {
      call_and_wait(c, round % 2 == 0 ? 30 : 3);
      // A recv that a caller leaves behind, and one that it has never waited for.
      Numbers left{0}, begun{0}, x{1}, mine{10 * c.rank() + round};
      Future of_other = other.start(receive(left, 1 - c.rank()));
      c.start(all_reduce(x)).wait();
      c.barrier();
      Future of_this = c.start(receive(begun, 1 - c.rank()));
      other.send(mine.data(), 1, DataType::int64, 1 - c.rank());
      c.send(mine.data(), 1, DataType::int64, 1 - c.rank());
      const auto end = Clock::now() + 10s;
      while (!(of_other.ready() && of_this.ready()) && Clock::now() < end) {
        std::this_thread::sleep_for(50us);
      }
      ASSERT_TRUE(of_other.ready() && of_this.ready()) << "round " << round;
      EXPECT_EQ(left, Numbers{10 * (1 - c.rank()) + round});
      EXPECT_EQ(begun, left);
    }
    ++over;
  });
  EXPECT_EQ(over, 2);
}

TEST_P(Started, ThreadsThatWaitTakeTurns) {
  constexpr int kThreads = 3, kCalls = 300;
  run_thread_ranks(2, [&](Communicator& c) {
    std::vector<Communicator> parts = parts_of(c, kThreads);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kCalls; ++i) {
          Numbers x(1 + 500 * t, c.rank() + i);
          Future f = parts[t].start(all_reduce(x));
          if (i % 3 == 0) {
            while (!f.wait_for(i % 2 == 0 ? 100us : 20ms)) continue;
          }
          f.wait();
          ASSERT_EQ(x, Numbers(x.size(), 2 * i + 1));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_P(Started, ACallbackMayDestroyWhatItsCallerWaitsIn) {
  constexpr int kRounds = 30;
  run_thread_ranks(2, [&](Communicator& c) {
    for (int round = 0; round < kRounds; ++round) {
      auto last = std::make_unique<Communicator>(c.split(0, c.rank()));
      call_and_wait(*last, round);
      Numbers x{c.rank()}, y{c.rank() + 1};
      Future f = last->start(all_reduce(x)), g = last->start(all_reduce(y));
      f.on_ready([&last] { last.reset(); });
      g.wait();
      EXPECT_EQ(y, Numbers{3});
    }
  });
}

TEST_P(Started, ManySmallOnesAreAllCarriedOut) {
  constexpr int kCalls = 10'000;
  run_thread_ranks(2, [&](Communicator& c) {
    std::vector<Communicator> parts = parts_of(c, 2);
    Numbers x{1}, y{1};
    std::atomic<int> called{0};
    std::vector<Future> futures;
    for (int i = 0; i < kCalls; ++i) {
      Numbers& z = i % 2 == 0 ? x : y;
      // The sums would overflow, but the calls' order shows: 2 z, then the larger of both ranks'.
      Call call = all_reduce(z);
      if (i >= 80) call.op = ReduceKind::max;
      futures.push_back(parts[static_cast<std::size_t>(i % 2)].start(call));
      futures.back().on_ready([&called] { ++called; });
    }
    for (Future& f : futures) f.wait();
    EXPECT_EQ(x, Numbers{std::int64_t{1} << 40});
    EXPECT_EQ(y, Numbers{std::int64_t{1} << 40});
    parts.clear();
    EXPECT_EQ(called, kCalls);
  });
}

}  // namespace
}  // namespace tutti
