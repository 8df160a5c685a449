// Messages and collectives of one communicator do not hold each other up: neither a blocking call
// what was started, nor, where several threads share a communicator, a thread that waits in a call
// the others. The ranks are threads, once as they are and once as if they were processes.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>
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

/// A communicator that the threads of a rank share, as bindings do it.
class Shared {
 public:
  explicit Shared(Communicator& comm) : comm_(comm) {}

  void run(const Call& call) {
    Future rest;
    {
      const auto turn = take_turn();
      ++begun_;
      rest = comm_.run_or_start(call, wanted_);
    }
    if (rest.valid()) ++moved_;
    rest.wait();
  }
  Future start(const Call& call) {
    const auto turn = take_turn();
    return comm_.start(call);
  }
  /// How many calls have ended on the engine's thread.
  int moved() const { return moved_; }
  int begun() const { return begun_; }
  /// Waits until another thread is in one more call; `before` calls had begun already.
  void wait_for_call(int before) const {
    while (begun_ == before) std::this_thread::sleep_for(1ms);
    std::this_thread::sleep_for(20ms);  // it waits by now, most probably
  }

 private:
  std::unique_lock<std::mutex> take_turn() {
    std::unique_lock turn(mutex_, std::try_to_lock);
    if (turn) return turn;
    ++wanted_;
    comm_.wake();
    turn.lock();
    --wanted_;
    return turn;
  }

  Communicator& comm_;
  std::mutex mutex_;
  std::atomic<int> wanted_{0}, moved_{0}, begun_{0};
};

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
    Shared shared(c);
    for (int round = 0; round < 20; ++round) {
      Numbers x = numbers(c.rank(), 1 + 700 * static_cast<std::size_t>(round));
      Numbers m = numbers(round, kLong), got(kLong);
      if (c.rank() == 0) {
        std::jthread other([&, before = shared.begun()] {
          shared.wait_for_call(before);
          shared.run(send(m, 1));
        });
        shared.run(all_reduce(x));
        if (round == 0) {
          EXPECT_GT(shared.moved(), 0);
        }
      } else {
        shared.run(receive(got, 0));
        shared.run(all_reduce(x));
        ASSERT_EQ(got, numbers(round, kLong));
      }
      ASSERT_EQ(x, sum_of(2, x.size())) << "round " << round;
    }
  });
}

TEST_P(SharedCommunicator, AThreadThatWaitsInARecvLetsOthersReduce) {
  run_thread_ranks(3, impatient(), [](Communicator& c) {
    Shared shared(c);
    Numbers x = numbers(c.rank(), 5000), m = numbers(7, kLong), got(kLong);
    if (c.rank() == 0) {
      std::jthread other([&, before = shared.begun()] {
        shared.wait_for_call(before);
        shared.run(all_reduce(x));
        shared.run({.collective = Collective::barrier});
      });
      shared.run(receive(got, 2));
      EXPECT_EQ(got, numbers(7, kLong));
    } else {
      shared.run(all_reduce(x));
      shared.run({.collective = Collective::barrier});
      if (c.rank() == 2) shared.run(send(m, 0));
    }
    EXPECT_EQ(x, sum_of(3, x.size()));
  });
}

TEST_P(SharedCommunicator, ThreadsOfAllRanksExchangeWhileOneReduces) {
  constexpr int kRanks = 3, kRounds = 60;
  run_thread_ranks(kRanks, impatient(), [](Communicator& c) {
    Shared shared(c);
    std::vector<std::jthread> threads;
    for (int peer = 0; peer < c.size(); ++peer) {
      if (peer == c.rank()) continue;
      threads.emplace_back([&, peer] {
        for (int i = 0; i < kRounds; ++i) {
          Numbers m = numbers(10 * c.rank() + peer, 1 + 97 * static_cast<std::size_t>(i));
          shared.run(send(m, peer));
        }
      });
      threads.emplace_back([&, peer] {
        for (int i = 0; i < kRounds; ++i) {
          Numbers got(1 + 97 * static_cast<std::size_t>(i));
          shared.run(receive(got, peer));
          ASSERT_EQ(got, numbers(10 * peer + c.rank(), got.size()));
        }
      });
    }
    for (int i = 0; i < kRounds; ++i) {
      Numbers x = numbers(c.rank(), 1 + 50 * static_cast<std::size_t>(i % 7));
      shared.run(all_reduce(x));
      ASSERT_EQ(x, sum_of(kRanks, x.size()));
    }
  });
}

TEST_P(SharedCommunicator, ACallThatHasMovedKeepsItsTimeout) {
  run_thread_ranks(2, [](Communicator& c) {
    Shared shared(c);
    Numbers x{1}, m{2}, got{0};
    if (c.rank() == 1) {
      shared.run(receive(got, 0));
      EXPECT_EQ(got, m);
      while (!c.error()) std::this_thread::sleep_for(1ms);
      return;
    }
    std::jthread other([&, before = shared.begun()] {
      shared.wait_for_call(before);
      shared.run(send(m, 1));
    });
    Call all = all_reduce(x);
    all.timeout = 300ms;
    const Error e = error_of([&] { shared.run(all); });
    EXPECT_EQ(e.code(), ErrorCode::timed_out);
    EXPECT_EQ(e.rank(), 1);
    EXPECT_GE(shared.moved(), 1);
  });
}

TEST_P(SharedCommunicator, ACallThatIsRefusedHarmsNothing) {
  run_thread_ranks(2, impatient(), [](Communicator& c) {
    Shared shared(c);
    Numbers x{1};
    Call wrong = all_reduce(x);
    wrong.out = nullptr;
    EXPECT_EQ(error_of([&] { shared.run(wrong); }).code(), ErrorCode::invalid_argument);
    EXPECT_EQ(error_of([&] { shared.run(send(x, 5)); }).code(), ErrorCode::invalid_argument);
    shared.run(all_reduce(x));
    EXPECT_EQ(x, Numbers{2});
  });
}

// --- Several threads, which do not take turns ----------------------------------------------------

TEST_P(SharedCommunicator, ASecondThreadIsToldAndTheFirstGoesOn) {
  std::atomic<bool> told{false};
  run_thread_ranks(2, impatient(), [&](Communicator& c) {
    Window window = c.window(4096);
    Numbers x = numbers(c.rank(), 100), m = numbers(7, 3), got(3);
    if (c.rank() == 0) {
      std::atomic<bool> begins{false};
      std::jthread first([&] {
        begins = true;
        c.run(receive(got, 1));
      });
      while (!begins) std::this_thread::sleep_for(1ms);
      std::this_thread::sleep_for(50ms);  // it waits by now, most probably
      std::atomic<int> wanted{0};
      const std::vector<std::function<void()>> calls{
          [&] { c.run(all_reduce(x)); },
          [&] { c.run(send(x, 1)); },
          [&] { c.start(all_reduce(x)); },
          [&] { c.run_or_start(all_reduce(x), wanted); },
          [&] { c.split(0, 0); },
          [&] { window.wait_signal(1); },
          [&] { window.run_or_start({.kind = WindowCall::Kind::wait_signal, .peer = 1}, wanted); },
          [&] { group([&] { window.wait_signal(1); }); },
          [&] {
            group([&] {
              c.run(send(x, 1));
              c.run(receive(x, 1));
            });
          },
      };
      for (std::size_t i = 0; i < calls.size(); ++i) {
        const Error e = error_of(calls[i]);
        EXPECT_EQ(e.code(), ErrorCode::invalid_usage) << i << ": " << e.what();
        EXPECT_NE(std::string(e.what()).find("two threads call this communicator at once"),
                  std::string::npos)
            << i << ": " << e.what();
      }
      told = true;
    } else {
      while (!told) std::this_thread::sleep_for(1ms);
      window.signal(0);
      c.run(send(m, 0));
    }
    if (c.rank() == 0) window.wait_signal(1);  // those that were refused have not taken it
    Communicator part = c.split(0, c.rank());
    part.run(all_reduce(x));
    EXPECT_EQ(x, sum_of(2, x.size()));
    if (c.rank() == 0) {
      EXPECT_EQ(got, m);
    }
  });
}

}  // namespace
}  // namespace tutti
