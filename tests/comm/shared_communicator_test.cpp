// Messages and collectives of one communicator do not hold each other up: neither a blocking call
// what was started, nor, where several threads share a communicator, a thread that waits in a call
// the others. The ranks are threads, once as they are and once as if they were processes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "comm/window.h"
#include "tests/comm/number_calls.h"
#include "tests/comm/started.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::all_reduce;
using test::error_of;
using test::Numbers;
using test::receive;
using test::run_thread_ranks;
using test::send;

constexpr std::size_t kLong = 300'000;  // more than the slots of a link hold

Numbers numbers(int rank, std::size_t count) {
  Numbers x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = 1'000'000 * (rank + 1) + static_cast<int>(i);
  return x;
}

Numbers sum_of(int ranks, std::size_t count) {
  Numbers x(count);
  for (int r = 0; r < ranks; ++r) {
    const Numbers of_rank = numbers(r, count);
    for (std::size_t i = 0; i < count; ++i) x[i] += of_rank[i];
  }
  return x;
}

Options impatient() {
  Options options;
  options.timeout = 20s;  // what would hang fails
  return options;
}

/// Waits until the other thread, which is about to make a call, waits in it, most probably.
void wait_for_call(const std::atomic<bool>& begins) {
  while (!begins) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(20ms);
}

class SharedCommunicator : public test::TogetherOrApart {};
INSTANTIATE_TEST_SUITE_P(Ranks, SharedCommunicator, testing::Bool(), test::together_or_apart);

// --- One thread ----------------------------------------------------------------------------------

TEST_P(SharedCommunicator, ABlockingSendOvertakesAStartedCollective) {
  run_thread_ranks(2, impatient(), [](Communicator& c) {
    Numbers x = numbers(c.rank(), 5000), m = numbers(7, kLong), got(kLong);
    if (c.rank() == 0) {
      Future all = c.start(all_reduce(x));
      c.run(send(m, 1));
      all.wait();
    } else {
      c.run(receive(got, 0));
      c.run(all_reduce(x));
      EXPECT_EQ(got, numbers(7, kLong));
    }
    EXPECT_EQ(x, sum_of(2, x.size()));
  });
}

TEST_P(SharedCommunicator, ABlockingCollectiveOvertakesAStartedRecv) {
  run_thread_ranks(3, impatient(), [](Communicator& c) {
    Numbers x = numbers(c.rank(), 5000), m = numbers(7, kLong), got(kLong);
    if (c.rank() == 0) {
      Future message = c.start(receive(got, 1));
      for (int i = 0; i < 3; ++i) {
        x = numbers(c.rank(), 5000);
        c.run(all_reduce(x));
      }
      c.barrier();
      message.wait();
      EXPECT_EQ(got, numbers(7, kLong));
    } else {
      for (int i = 0; i < 3; ++i) {
        x = numbers(c.rank(), 5000);
        c.run(all_reduce(x));
      }
      c.barrier();
      if (c.rank() == 1) c.run(send(m, 0));
    }
    EXPECT_EQ(x, sum_of(3, x.size()));
  });
}

TEST_P(SharedCommunicator, ABlockingCollectiveKeepsItsPlaceBehindStartedOnes) {
  run_thread_ranks(3, impatient(), [](Communicator& c) {
    Numbers x{c.rank() + 1};
    for (int i = 0; i < 50; ++i) {
      c.start(all_reduce(x));
      c.run(all_reduce(x));
      ASSERT_EQ(x, Numbers{18});
      x = {c.rank() + 1};
    }
  });
}

TEST_P(SharedCommunicator, AGroupOvertakesAStartedCollective) {
  run_thread_ranks(2, impatient(), [](Communicator& c) {
    Communicator other = c.split(0, c.rank());
    Numbers x = numbers(c.rank(), 5000), y = x, m = numbers(c.rank(), kLong), got(kLong);
    const int peer = 1 - c.rank();
    Future all;
    if (c.rank() == 0) all = c.start(all_reduce(x));
    group([&] {
      c.run(send(m, peer));
      c.run(receive(got, peer));
      other.run(all_reduce(y));
    });
    if (c.rank() == 1) c.run(all_reduce(x));
    all.wait();
    EXPECT_EQ(got, numbers(peer, kLong));
    EXPECT_EQ(x, sum_of(2, x.size()));
    EXPECT_EQ(y, x);
  });
}

TEST_P(SharedCommunicator, AGroupBesideWhatIsStartedFailsAsAWhole) {
  run_thread_ranks(2, impatient(), [](Communicator& c) {
    Communicator other = c.split(0, c.rank());
    Numbers x{1}, y{1}, got{0};
    if (c.rank() == 1) {
      EXPECT_EQ(error_of([&] { other.barrier(); }).code(), ErrorCode::mismatch);
      EXPECT_EQ(error_of([&] { c.barrier(); }).code(), ErrorCode::mismatch);
      return;
    }
    Future never = c.start(receive(got, 1));
    const Error e = error_of([&] {
      group([&] {
        c.run(all_reduce(x));
        other.run(all_reduce(y));
      });
    });
    EXPECT_EQ(e.code(), ErrorCode::mismatch);
    EXPECT_THROW(never.wait(), Error);
  });
}

// --- Several threads -----------------------------------------------------------------------------

TEST_P(SharedCommunicator, AThreadThatWaitsInACollectiveLetsOthersSend) {
  run_thread_ranks(2, impatient(), [](Communicator& c) {
    for (int round = 0; round < 20; ++round) {
      Numbers x = numbers(c.rank(), 1 + 700 * static_cast<std::size_t>(round));
      Numbers m = numbers(round, kLong), got(kLong);
      if (c.rank() == 0) {
        std::atomic<bool> begins{false};
        std::jthread other([&] {
          wait_for_call(begins);
          c.run(send(m, 1));
        });
        begins = true;
        c.run(all_reduce(x));
      } else {
        c.run(receive(got, 0));
        c.run(all_reduce(x));
        ASSERT_EQ(got, numbers(round, kLong));
      }
      ASSERT_EQ(x, sum_of(2, x.size())) << "round " << round;
    }
    if (c.rank() == 0) {
      EXPECT_GT(test::engine_threads(), 0);  // its calls have moved there
    }
  });
}

TEST_P(SharedCommunicator, AThreadThatWaitsInARecvLetsOthersReduce) {
  run_thread_ranks(3, impatient(), [](Communicator& c) {
    Numbers x = numbers(c.rank(), 5000), m = numbers(7, kLong), got(kLong);
    if (c.rank() == 0) {
      std::atomic<bool> begins{false};
      std::jthread other([&] {
        wait_for_call(begins);
        c.run(all_reduce(x));
        c.barrier();
      });
      begins = true;
      c.run(receive(got, 2));
      EXPECT_EQ(got, numbers(7, kLong));
    } else {
      c.run(all_reduce(x));
      c.barrier();
      if (c.rank() == 2) c.run(send(m, 0));
    }
    EXPECT_EQ(x, sum_of(3, x.size()));
  });
}

TEST_P(SharedCommunicator, AThreadThatWaitsInAGroupLetsOthersSend) {
  run_thread_ranks(2, impatient(), [](Communicator& c) {
    Communicator other_comm = c.split(0, c.rank());
    Numbers x = numbers(c.rank(), 5000), y = x, m = numbers(7, kLong), got(kLong), back(3);
    const auto in_group = [&] {
      c.run(all_reduce(x));
      c.run(all_reduce(x));
      other_comm.run(all_reduce(y));
      c.rank() == 0 ? c.run(receive(back, 1)) : c.run(send(back, 0));
    };
    if (c.rank() == 0) {
      std::atomic<bool> begins{false};
      std::jthread other([&] {
        wait_for_call(begins);
        c.run(send(m, 1));
      });
      begins = true;
      group(in_group);
      EXPECT_EQ(back, numbers(3, 3));
    } else {
      c.run(receive(got, 0));
      EXPECT_EQ(got, numbers(7, kLong));
      back = numbers(3, 3);
      group(in_group);
    }
    EXPECT_EQ(y, sum_of(2, y.size()));
    for (std::int64_t& sum : y) sum *= 2;  // the second all_reduce sums two equal sums
    EXPECT_EQ(x, y);
  });
}

TEST_P(SharedCommunicator, AThreadStartsCallsWhileAnotherOneWaits) {
  run_thread_ranks(2, impatient(), [](Communicator& c) {
    Numbers x = numbers(c.rank(), 5000), m = numbers(7, kLong), got(kLong);
    if (c.rank() == 0) {
      std::atomic<bool> begins{false};
      std::jthread other([&] {
        wait_for_call(begins);
        Future sent = c.start(send(m, 1));
        sent.wait();
      });
      begins = true;
      c.run(all_reduce(x));
    } else {
      c.run(receive(got, 0));
      c.run(all_reduce(x));
      EXPECT_EQ(got, numbers(7, kLong));
    }
    EXPECT_EQ(x, sum_of(2, x.size()));
  });
}

TEST_P(SharedCommunicator, ThreadsOfAllRanksExchangeWhileOneReduces) {
  constexpr int kRanks = 3, kRounds = 60;
  run_thread_ranks(kRanks, impatient(), [](Communicator& c) {
    std::vector<std::jthread> threads;
    for (int peer = 0; peer < c.size(); ++peer) {
      if (peer == c.rank()) continue;
      threads.emplace_back([&, peer] {
        for (int i = 0; i < kRounds; ++i) {
          Numbers m = numbers(10 * c.rank() + peer, 1 + 97 * static_cast<std::size_t>(i));
          c.run(send(m, peer));
        }
      });
      threads.emplace_back([&, peer] {
        for (int i = 0; i < kRounds; ++i) {
          Numbers got(1 + 97 * static_cast<std::size_t>(i));
          c.run(receive(got, peer));
          ASSERT_EQ(got, numbers(10 * peer + c.rank(), got.size()));
        }
      });
    }
    for (int i = 0; i < kRounds; ++i) {
      Numbers x = numbers(c.rank(), 1 + 50 * static_cast<std::size_t>(i % 7));
      c.run(all_reduce(x));
      ASSERT_EQ(x, sum_of(kRanks, x.size()));
    }
  });
}

// Each thread repeats one call, which needs no look-up, so that only turns keep them apart. The
// messages of all threads are alike: which thread has which does not matter.
TEST_P(SharedCommunicator, TurnsOfManyThreadsLoseNoCall) {
  constexpr int kThreads = 4, kRounds = 500;
  run_thread_ranks(2, impatient(), [](Communicator& c) {
    std::atomic<std::int64_t> sum{0};
    {
      std::vector<std::jthread> threads;
      for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&] {
          std::int64_t mine = 0;
          Numbers x{0};
          for (int i = 0; i < kRounds; ++i) {
            if (c.rank() == 0) x[0] = 1000 + i;
            c.run(c.rank() == 0 ? send(x, 1) : receive(x, 0));
            mine += x[0];
          }
          sum += mine;
        });
      }
    }
    c.barrier();
    EXPECT_EQ(sum, std::int64_t{kThreads} * (1000 * kRounds + kRounds * (kRounds - 1) / 2));
  });
}

TEST_P(SharedCommunicator, ACallThatHasMovedKeepsItsTimeout) {
  run_thread_ranks(2, [](Communicator& c) {
    Numbers x{1}, m{2}, got{0};
    if (c.rank() == 1) {
      c.run(receive(got, 0));
      EXPECT_EQ(got, m);
      while (!c.error()) std::this_thread::sleep_for(1ms);
      return;
    }
    std::atomic<bool> begins{false};
    std::jthread other([&] {
      wait_for_call(begins);
      c.run(send(m, 1));
    });
    Call all = all_reduce(x);
    all.timeout = 300ms;
    begins = true;
    const Error e = error_of([&] { c.run(all); });
    EXPECT_EQ(e.code(), ErrorCode::timed_out);
    EXPECT_EQ(e.rank(), 1);
  });
}

TEST_P(SharedCommunicator, ACallThatIsRefusedHarmsNothing) {
  run_thread_ranks(2, impatient(), [](Communicator& c) {
    Numbers x{1};
    Call wrong = all_reduce(x);
    wrong.out = nullptr;
    EXPECT_EQ(error_of([&] { c.run(wrong); }).code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error_of([&] { c.run(send(x, 5)); }).code(), ErrorCode::invalid_argument);
    c.run(all_reduce(x));
    EXPECT_EQ(x, Numbers{2});
  });
}

// Where the second thread makes what keeps its turn, the first one's call goes on meanwhile.
TEST_P(SharedCommunicator, ASecondThreadDoesAllThatTheFirstOneMay) {
  run_thread_ranks(2, impatient(), [](Communicator& c) {
    Window window = c.window(4096);
    Numbers m = numbers(7, 3), got(3), x = numbers(c.rank(), 100);
    std::atomic<bool> begins{false};
    std::jthread first;
    if (c.rank() == 0) {
      first = std::jthread([&] {
        begins = true;
        c.run(receive(got, 1));
      });
      wait_for_call(begins);
    }
    c.run(all_reduce(x));
    c.start(all_reduce(x)).wait();
    Numbers sum = sum_of(2, 100);
    for (std::int64_t& s : sum) s *= 2;
    EXPECT_EQ(x, sum);
    window.signal(1 - c.rank());
    window.wait_signal(1 - c.rank());
    window.signal(1 - c.rank());
    group([&] { window.wait_signal(1 - c.rank()); });
    if (c.rank() == 1) c.run(send(m, 0));
    if (first.joinable()) first.join();
    Communicator part = c.split(0, c.rank());
    x = numbers(c.rank(), 100);
    part.run(all_reduce(x));
    EXPECT_EQ(x, sum_of(2, x.size()));
    if (c.rank() == 0) {
      EXPECT_EQ(got, m);
    }
  });
}

}  // namespace
}  // namespace tutti
