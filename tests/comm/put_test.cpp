// Windows: puts, signals and waits between ranks that are threads, that are treated as processes,
// and (TUTTI_TEST_RANKS_PER_HOST) as hosts. put_ends_test.cpp has what is refused, and ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "tests/comm/put_exercises.h"
#include "tests/comm/started.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::error_of;
using test::PutMemory;
using test::run_thread_ranks;

class Put : public test::TogetherOrApart {};
INSTANTIATE_TEST_SUITE_P(Ranks, Put, testing::Bool(), test::together_or_apart);

constexpr PutMemory kMemories[] = {PutMemory::owned, PutMemory::allocated, PutMemory::registered,
                                   PutMemory::plain};

// --- Data and signals ----------------------------------------------------------------------------

TEST_P(Put, AllPutsArriveAndNothingElseChanges) {
  for (const int ranks : {1, 2, 3}) {
    run_thread_ranks(ranks, [](Communicator& comm) {
      for (const PutMemory kind : kMemories) test::put_all_to_all(comm, kind);
    });
  }
}

TEST_P(Put, ASignalComesAfterAllThatWasPutBefore) {
  for (const int ranks : {2, 3}) {
    run_thread_ranks(ranks, [](Communicator& comm) {
      for (const PutMemory kind : kMemories) test::put_in_order(comm, kind, 150);
    });
  }
}

TEST_P(Put, MorePutsThanThereIsRoomForArrive) {
  run_thread_ranks(2, [](Communicator& comm) { test::put_many(comm); });
}

TEST_P(Put, AStormArrivesWhole) {
  const char* const seconds = std::getenv("TUTTI_TEST_SECONDS");
  const auto time = seconds != nullptr ? std::chrono::seconds(std::atoi(seconds)) / 4 : 500ms;
  for (const int ranks : {2, 4}) {
    run_thread_ranks(ranks, [&](Communicator& comm) { test::put_storm(comm, 42, time); });
  }
}

TEST_P(Put, SignalsAreCountedAndTheRestStays) {
  run_thread_ranks(2, [](Communicator& comm) {
    Window window = comm.window(0);
    const int peer = 1 - comm.rank();
    for (int i = 0; i < 5; ++i) window.signal(peer);
    window.wait_signal(peer, 2);
    window.wait_signal(peer, 0);
    window.wait_signal(peer);
    Future rest = window.start(
        {.kind = WindowCall::Kind::wait_signal, .peer = peer, .count = 3});  // one too many
    EXPECT_FALSE(rest.wait_for(20ms));
    comm.barrier();
    window.signal(peer);
    rest.wait();
    window.close();
  });
}

TEST_P(Put, AWaitOfOneThreadHoldsUpNoOtherThread) {
  run_thread_ranks(2, [](Communicator& comm) {
    Window window = comm.window(0);
    const int peer = 1 - comm.rank();
    window.signal(peer);
    window.wait_signal(peer);
    std::atomic<bool> over{false};
    std::thread waiting([&] {
      window.wait_signal(peer);
      over = true;
    });
    std::this_thread::sleep_for(20ms);  // it waits by now, most probably
    comm.barrier();
    EXPECT_FALSE(over);  // no peer signals before the next barrier
    comm.barrier();
    window.signal(peer);
    waiting.join();
    window.close();
  });
}

TEST_P(Put, IndicesAndRanksAndWindowsAreApart) {
  run_thread_ranks(3, [](Communicator& comm) {
    Window first = comm.window(0), second = comm.window(0);
    const int next = (comm.rank() + 1) % 3, previous = (comm.rank() + 2) % 3;
    std::vector<Future> futures;
    for (int index = 0; index < Window::kSignals; ++index) {
      futures.push_back(
          first.start({.kind = WindowCall::Kind::wait_signal, .peer = previous, .index = index}));
    }
    comm.barrier();
    second.signal(next, 3);
    first.signal(previous, 3);
    comm.barrier();
    for (Future& future : futures) EXPECT_FALSE(future.wait_for(2ms));
    comm.barrier();
    first.signal(next, 9);
    futures[9].wait();
    EXPECT_FALSE(futures[8].ready());
    comm.barrier();
    for (int index = 0; index < Window::kSignals; ++index) {
      if (index != 9) first.signal(next, index);
    }
    for (Future& future : futures) future.wait();
    first.wait_signal(next, 1, 3);
    second.wait_signal(previous, 1, 3);
    first.close();
    second.close();
  });
}

TEST_P(Put, ABusyRankIsWrittenTo) {
  run_thread_ranks(2, [](Communicator& comm) {
    constexpr std::size_t kBytes = 3'000'000;
    constexpr int kPuts = 20;  // more than a link has room for
    test::PutWindow window(comm, PutMemory::allocated, kBytes);
    static std::atomic<bool> written;
    if (comm.rank() == 0) written = false;
    comm.barrier();
    if (comm.rank() == 0) {
      for (int i = 1; i <= kPuts; ++i) {
        const std::vector<std::byte> data(kBytes, static_cast<std::byte>(i));
        window->put_signal(1, 0, data.data(), kBytes);
      }
      written = true;
    } else {
      // It computes, and makes no call.
      const auto end = std::chrono::steady_clock::now() + 20s;
      while (!written && std::chrono::steady_clock::now() < end) {
      }
      EXPECT_TRUE(written);
      window->wait_signal(0, kPuts);
      EXPECT_EQ(std::count(window.data(), window.data() + kBytes, std::byte{kPuts}), kBytes);
    }
    window->close();
  });
}

TEST_P(Put, AMapIsThePeersMemory) {
  run_thread_ranks(2, [](Communicator& comm) {
    for (const PutMemory kind : kMemories) {
      test::PutWindow window(comm, kind, 5000);
      const int peer = 1 - comm.rank();
      const char* const per_host = std::getenv("TUTTI_TEST_RANKS_PER_HOST");
      const bool other_host = per_host != nullptr && std::atoi(per_host) == 1;
      std::byte* const theirs = window->map(peer);
      EXPECT_EQ(window->map(comm.rank()), window.data());
      if (other_host || (GetParam() && kind == PutMemory::plain)) {
        EXPECT_EQ(theirs, nullptr);
      } else {
        ASSERT_NE(theirs, nullptr);
        theirs[4999] = static_cast<std::byte>(40 + comm.rank());
        window->signal(peer);
        window->wait_signal(peer);
        EXPECT_EQ(window.data()[4999], static_cast<std::byte>(40 + peer));
      }
      window->close();
    }
  });
}

TEST_P(Put, AGroupRunsItsCallsAtItsEnd) {
  run_thread_ranks(2, [](Communicator& comm) {
    Window window = comm.window(64);
    const int peer = 1 - comm.rank();
    std::uint64_t value = 0;
    int one = 1, all = 0;
    group([&] {
      window.put_signal(peer, 8, &value, sizeof value);
      window.wait_signal(peer);
      comm.all_reduce(&one, &all, 1, DataType::int32);
      value = 1000 + static_cast<std::uint64_t>(comm.rank());  // it is read later
    });
    std::uint64_t got = 0;
    std::memcpy(&got, window.data() + 8, sizeof got);
    EXPECT_EQ(got, 1000U + static_cast<unsigned>(peer));
    EXPECT_EQ(all, 2);
    window.close();
  });
}

TEST_P(Put, AGroupOfWaitsRunsBesideStartedCalls) {
  run_thread_ranks(2, [](Communicator& comm) {
    Window window = comm.window(0);
    const int peer = 1 - comm.rank();
    for (int round = 0; round < 20; ++round) {
      Future before = window.start({.kind = WindowCall::Kind::wait_signal, .peer = peer});
      comm.barrier();
      window.signal(peer, 1);
      group([&] { window.wait_signal(peer, 1, 1); });
      EXPECT_FALSE(before.ready());
      comm.barrier();
      window.signal(peer);
      before.wait();
    }
    window.close();
  });
}

TEST_P(Put, AWaitThatACallbackMayNotMakeTakesNoSignal) {
  run_thread_ranks(2, [](Communicator& comm) {
    Window window = comm.window(0);
    const int peer = 1 - comm.rank();
    Future first = window.start({.kind = WindowCall::Kind::wait_signal, .peer = peer});
    std::promise<ErrorCode> refusal;
    first.on_ready(
        [&] { refusal.set_value(error_of([&] { window.wait_signal(peer, 1, 1); }).code()); });
    comm.barrier();
    window.signal(peer);
    EXPECT_EQ(refusal.get_future().get(), ErrorCode::invalid_usage);
    comm.barrier();
    window.signal(peer, 1);
    window.wait_signal(peer, 1, 1);
    window.close();
  });
}

TEST_P(Put, AGroupThatIsRefusedHalfWayReadsNoSourceAfterwards) {
  run_thread_ranks(2, [](Communicator& comm) {
    constexpr std::size_t kBytes = 60'000'000;  // more than a link has room for
    Window window = comm.window(kBytes), other = comm.window(8);
    comm.barrier();
    if (comm.rank() == 0) {
      {
        const std::vector<std::byte> source(kBytes, std::byte{1});
        const Error error = error_of([&] {
          group([&] {
            window.put(1, 0, source.data(), kBytes);
            other.signal(1);
            other.end();
          });
        });
        EXPECT_EQ(error.code(), ErrorCode::invalid_usage);
      }
    } else {
      std::this_thread::sleep_for(50ms);
    }
  });
}

}  // namespace
}  // namespace tutti
