// Turns: threads have them one at a time, in the order in which they come.
#include "core/turns.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "core/error.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

Deadline never() { return Deadline::max(); }

TEST(Turns, OneThreadTakesItsTurnsWithoutWakingAnybody) {
  std::atomic<int> woken{0};
  Turns turns([&] { ++woken; }, never);
  for (int i = 0; i < 1000; ++i) {
    turns.lock();
    EXPECT_TRUE(turns.are_taken());
    turns.unlock();
    EXPECT_FALSE(turns.are_taken());
  }
  EXPECT_EQ(woken, 0);
}

TEST(Turns, NoTwoThreadsHaveTheirTurnsAtOnce) {
  constexpr int kThreads = 4, kTurns = 20'000;
  Turns turns([] {}, never);
  long count = 0;  // not atomic: the turns keep its writers apart
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::this_thread::sleep_for(t * 1ms);  // the first one has it for itself for a while
        for (int i = 0; i < kTurns; ++i) {
          turns.lock();
          count = count + 1;
          turns.unlock();
        }
      });
    }
  }
  EXPECT_EQ(count, kThreads * kTurns);
}

TEST(Turns, AThreadThatWaitsIsSeenAndComesBeforeLaterOnes) {
  std::atomic<int> woken{0};
  Turns turns([&] { ++woken; }, never);
  std::vector<int> order;
  turns.lock();
  EXPECT_EQ(turns.wanted(), 0);
  std::vector<std::jthread> threads;
  for (int t = 1; t <= 3; ++t) {
    threads.emplace_back([&, t] {
      turns.lock();
      order.push_back(t);
      turns.unlock();
    });
    while (turns.wanted() < t) std::this_thread::yield();
  }
  order.push_back(0);
  turns.unlock();
  turns.lock();  // after all that have come before
  order.push_back(4);
  turns.unlock();
  threads.clear();
  EXPECT_EQ(order, (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_GE(woken, 3);
}

TEST(Turns, AWaitEndsAtItsDeadlineAndLeavesNoTrace) {
  Turns turns([] {}, [] { return deadline_after(20ms); });
  turns.lock();
  std::jthread([&] { EXPECT_THROW(turns.lock(), Error); }).join();
  EXPECT_EQ(turns.wanted(), 0);
  turns.unlock();
  std::jthread([&] {
    turns.lock();
    turns.unlock();
  }).join();
  turns.lock();
  EXPECT_TRUE(turns.are_taken());
  turns.unlock();
}

TEST(Turns, AThreadThatHasItsTurnIsRefusedASecondOne) {
  Turns turns([] {}, never);
  const auto twice = [&] {
    turns.lock();
    EXPECT_THROW(turns.lock(), Error);
    turns.unlock();
  };
  twice();
  std::jthread(twice).join();  // as the second thread, that of another kind of turns
  twice();
}

}  // namespace
}  // namespace tutti
