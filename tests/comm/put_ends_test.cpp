// Windows: wrong arguments, ends and failures, on the ranks of put_test.cpp. Part of put_test.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/comm/put_exercises.h"
#include "tests/comm/started.h"
#include "tests/support/contains.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::error_of;
using test::PutMemory;
using test::run_thread_ranks;

class PutEnds : public test::TogetherOrApart {};
INSTANTIATE_TEST_SUITE_P(Ranks, PutEnds, testing::Bool(), test::together_or_apart);

/// Memory that is there after its window.
constexpr PutMemory kThatStays[] = {PutMemory::allocated, PutMemory::registered, PutMemory::plain};

// --- Arguments -----------------------------------------------------------------------------------

TEST_P(PutEnds, WrongArgumentsAreRefusedByTheCallerAlone) {
  run_thread_ranks(2, [](Communicator& comm) {
    Window window = comm.window(100 + 28 * static_cast<std::size_t>(comm.rank()));
    if (comm.rank() == 0) {
      const std::byte data[200]{};
      const auto expect = [&](auto&& call, const std::string& text) {
        const Error error = error_of(call);
        EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
        EXPECT_CONTAINS(error.what(), text);
      };
      expect([&] { window.put(2, 0, data, 1); }, "peer 2 is out of range");
      expect([&] { window.put(-1, 0, data, 1); }, "peer -1 is out of range");
      expect([&] { window.put(1, 120, data, 9); },
             "9 bytes at offset 120 do not fit into the memory of rank 1, which has 128");
      expect([&] { window.put(1, SIZE_MAX - 3, data, 8); }, "do not fit");
      expect([&] { window.put(1, 8, data, SIZE_MAX - 3); }, "do not fit");
      expect([&] { window.put(1, 0, nullptr, 1); }, "source is null");
      expect([&] { window.put_signal(1, 0, data, 1, 16); }, "signal 16 is out of range");
      expect([&] { window.signal(1, -1); }, "signal -1 is out of range");
      expect([&] { window.wait_signal(1, 1, 16); }, "signal 16 is out of range");
      expect([&] { (void)window.bytes_of(2); }, "bytes_of of window 1: peer 2 is out of range");
      expect(
          [&] {
            window.run({.kind = WindowCall::Kind::wait_signal,
                        .peer = 1,
                        .count = 1,
                        .timeout = std::chrono::nanoseconds(-1)});
          },
          "a timeout of -1 ns is negative");
      expect([&] { window.wait_signal(1, UINT64_MAX); }, "more than anybody can give");
      expect([&] { window.start({.peer = 7}); }, "peer 7");
      expect([&] { comm.window(nullptr, 5); }, "memory is null");
      EXPECT_EQ(error_of([] { Window().signal(0); }).code(), ErrorCode::invalid_usage);
      EXPECT_EQ(error_of([&] { group([&] { window.start({.peer = 1}); }); }).code(),
                ErrorCode::invalid_usage);
      EXPECT_EQ(error_of([&] { group([&] { comm.window(8); }); }).code(), ErrorCode::invalid_usage);
      window.put(1, 120, data, 8);  // that fits
    }
    comm.barrier();  // nothing is lost
    window.close();
  });
}

TEST_P(PutEnds, AllRanksGetAWindowOrNone) {
  run_thread_ranks(3, [](Communicator& comm) {
    const std::size_t bytes = comm.rank() == 1 ? SIZE_MAX / 4 : 8;  // more than there is
    const Error error = error_of([&] { comm.window(bytes); });
    EXPECT_EQ(error.code(), ErrorCode::system);
    if (comm.rank() != 1) {
      EXPECT_EQ(error.rank(), 1);
      EXPECT_CONTAINS(error.what(), "rank 1 cannot open its part");
    }
    Window window = comm.window(8);
    window.close();
  });
}

// --- Ends and failures ---------------------------------------------------------------------------

TEST_P(PutEnds, AnEndedWindowIsWrittenToNoMore) {
  run_thread_ranks(3, [](Communicator& comm) {
    for (int round = 0; round < 6; ++round) {
      const PutMemory kind = kThatStays[round % 3];
      constexpr std::size_t kPart = 2'000'000, kTail = 5000;  // of each writer
      test::PutWindow window(comm, kind, 2 * kPart);
      if (comm.rank() == 0) {
        window->wait_signal(1);
        window->wait_signal(2);
        window->end();
        // A rank in the middle of a put would come to the end of the memory later.
        const auto tail_of = [&](int writer) { return window.data() + writer * kPart - kTail; };
        for (const int writer : {1, 2}) std::memset(tail_of(writer), 0x11, kTail);
        std::this_thread::sleep_for(5ms);
        for (const int writer : {1, 2}) {
          std::byte* const tail = tail_of(writer);
          EXPECT_EQ(std::count(tail, tail + kTail, std::byte{0x11}), kTail);
        }
      } else {
        const std::vector<std::byte> data(kPart, static_cast<std::byte>(comm.rank()));
        const std::size_t offset = (static_cast<std::size_t>(comm.rank()) - 1) * kPart;
        const Error error = error_of([&] {
          for (;;) window->put_signal(0, offset, data.data(), kPart);
        });
        EXPECT_EQ(error.code(), ErrorCode::invalid_usage) << error.what();
        EXPECT_EQ(error.rank(), 0);
        EXPECT_CONTAINS(error.what(), "rank 0, which has ended its part");
        EXPECT_EQ(error_of([&] { window->wait_signal(0); }).code(), ErrorCode::invalid_usage);
        EXPECT_EQ(error_of([&] {
                    window->start({.kind = WindowCall::Kind::wait_signal, .peer = 0}).wait();
                  }).code(),
                  ErrorCode::invalid_usage);
      }
      comm.barrier();  // the communicator lives
    }
  });
}

// The rank that has ended its part says whether a failure was the reason: else there is no news for
// which the others would wait before they throw (300 ms).
TEST_P(PutEnds, AWriterHearsOfAnEndAtOnce) {
  run_thread_ranks(2, [](Communicator& comm) {
    std::vector<std::chrono::nanoseconds> took;
    for (int round = 0; round < 5; ++round) {
      Window window = comm.window(64);
      if (comm.rank() == 0) {
        window.wait_signal(1, 2);
        window.end();
      } else {
        const std::byte data[64]{};
        ErrorCode code{};
        while (code == ErrorCode{}) {
          const auto from = std::chrono::steady_clock::now();
          code = error_of([&] { window.put_signal(0, 0, data, sizeof data); }).code();
          took.push_back(std::chrono::steady_clock::now() - from);
        }
        EXPECT_EQ(code, ErrorCode::invalid_usage);
        std::swap(took[static_cast<std::size_t>(round)], took.back());
        took.resize(static_cast<std::size_t>(round) + 1);  // the call of each round that threw
      }
      comm.barrier();
    }
    if (comm.rank() == 1) {
      EXPECT_LT(*std::ranges::min_element(took), 200ms);
    }
  });
}

TEST_P(PutEnds, SignalsBeforeAnEndAreTaken) {
  run_thread_ranks(2, [](Communicator& comm) {
    Window window = comm.window(8);
    if (comm.rank() == 0) {
      window.signal(1);
      window.signal(1);
      window.end();
    } else {
      std::this_thread::sleep_for(20ms);
      window.wait_signal(0, 2);
      EXPECT_EQ(error_of([&] { window.wait_signal(0); }).code(), ErrorCode::invalid_usage);
    }
    comm.barrier();
  });
}

TEST_P(PutEnds, AWindowEndsWithItsCommunicator) {
  run_thread_ranks(2, [](Communicator& comm) {
    std::optional<Communicator> part = comm.split(0, comm.rank());
    Window window = part->window(8);
    comm.barrier();
    part.reset();
    const Error error = error_of([&] { window.signal(1 - comm.rank()); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_usage);
    EXPECT_CONTAINS(error.what(), "has ended, by itself or with its communicator");
    EXPECT_EQ(error_of([&] { window.close(); }).code(), ErrorCode::invalid_usage);
    comm.barrier();
  });
}

TEST_P(PutEnds, AWaitEndsAtItsTimeout) {
  run_thread_ranks(2, [](Communicator& comm) {
    Window window = comm.window(8);
    if (comm.rank() == 0) {
      window.signal(0, 4);
      const Error error = error_of([&] {
        window.run({.kind = WindowCall::Kind::wait_signal,
                    .peer = 1,
                    .index = 4,
                    .count = 2,
                    .timeout = 100ms});
      });
      EXPECT_EQ(error.code(), ErrorCode::timed_out);
      EXPECT_TRUE(test::contains(error.what(),
                                 "in wait_signal of window 1 (signal 4, 0 of 2 there) for rank 1 "
                                 "to give a signal") ||
                  test::contains(error.what(), "been waiting in wait_signal of window 1"))
          << error.what();
    } else {
      while (!comm.error()) std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(error_of([&] { window.signal(0); }).code(), ErrorCode::timed_out);
  });
}

TEST_P(PutEnds, AnAbortEndsWaits) {
  run_thread_ranks(3, [](Communicator& comm) {
    Window window = comm.window(8);
    if (comm.rank() == 0) {
      std::this_thread::sleep_for(30ms);
      comm.abort("enough");
    } else if (comm.rank() == 1) {
      const Error error = error_of([&] { window.wait_signal(0); });
      EXPECT_EQ(error.code(), ErrorCode::aborted);
      EXPECT_CONTAINS(error.what(), "enough");
    } else {
      Future wait = window.start({.kind = WindowCall::Kind::wait_signal, .peer = 0});
      EXPECT_EQ(error_of([&] { wait.wait(); }).code(), ErrorCode::aborted);
    }
    EXPECT_EQ(error_of([&] { window.put(0, 0, "abc", 3); }).code(), ErrorCode::aborted);
    EXPECT_EQ(error_of([&] { window.close(); }).code(), ErrorCode::aborted);
  });
}

TEST_P(PutEnds, ARankThatLeavesIsNotWaitedFor) {
  run_thread_ranks(2, [](Communicator& comm) {
    Communicator part = comm.split(0, comm.rank());
    Window window = part.window(8);
    if (comm.rank() == 0) {
      part.destroy();
    } else {
      const Error error = error_of([&] { window.wait_signal(0); });
      EXPECT_EQ(error.code(), ErrorCode::peer_lost) << error.what();
      EXPECT_EQ(error.rank(), 0);
      EXPECT_EQ(error_of([&] { window.put(0, 0, "abc", 3); }).code(), ErrorCode::peer_lost);
    }
    comm.barrier();
  });
}

}  // namespace
}  // namespace tutti
