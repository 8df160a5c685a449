// What a second thread does to a communicator while the first one is in a blocking call: it may not
// destroy it; a destructor, and the end of the process, end the call first; the end of a window
// ends the waits for its signals. A communicator stays as it is for the calls that wait for their
// turns.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/window.h"
#include "tests/support/thread_ranks.h"
#include "tests/support/variable.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::error_of;
using test::run_thread_ranks;

/// A call that waits, as the other rank does not make it.
using Blocks = std::function<void(Communicator&)>;
const std::vector<Blocks>& blocking_calls() {
  static std::vector<float> x(4'000'000);  // made before a thread is about to call
  static const std::vector<Blocks> all = {
      [](Communicator& c) { c.barrier(); },
      [](Communicator& c) { c.all_reduce(x.data(), x.data(), 300'000, DataType::float32); },
      [](Communicator& c) { c.recv(x.data(), 1, DataType::float32, 1); },
      [](Communicator& c) { c.send(x.data(), x.size(), DataType::float32, 1); },
  };
  return all;
}

/// Runs `body` on rank 0 while another thread of that rank is in `call`, for which it waits then.
/// Returns what the call throws.
Error beside(Communicator& c, const Blocks& call, const std::function<void()>& body) {
  Error error(ErrorCode{}, "");
  std::atomic<bool> begun{false};
  std::thread other([&] {
    begun = true;
    error = error_of([&] { call(c); });
  });
  while (!begun) std::this_thread::yield();
  std::this_thread::sleep_for(100ms);
  body();
  other.join();
  return error;
}

TEST(TwoThreads, ADestroyBesideABlockingCallIsRefused) {
  for (const Blocks& call : blocking_calls()) {
    run_thread_ranks(2, [&](Communicator& c) {
      c.barrier();
      if (c.rank() == 1) {
        // Until rank 0 has aborted it.
        while (!c.error()) std::this_thread::sleep_for(5ms);
        return;
      }
      const Error ended = beside(c, call, [&] {
        EXPECT_EQ(error_of([&] { c.destroy(); }).code(), ErrorCode::invalid_usage);
        EXPECT_TRUE(c);  // nothing has happened
        EXPECT_EQ(c.size(), 2);
        c.abort("enough");
      });
      EXPECT_EQ(ended.code(), ErrorCode::aborted) << ended.what();
      c.destroy();
      EXPECT_FALSE(c);
    });
  }
}

TEST(TwoThreads, ADestructorBesideABlockingCallEndsIt) {
  for (const Blocks& call : blocking_calls()) {
    run_thread_ranks(2, [&](Communicator& c) {
      std::optional<Communicator> own(c.split(0, c.rank()));
      if (c.rank() == 1) {
        while (!own->error()) std::this_thread::sleep_for(5ms);
        return;
      }
      Communicator& used = *own;
      const Error ended = beside(used, call, [&] { own.reset(); });
      EXPECT_EQ(ended.code(), ErrorCode::aborted) << ended.what();
      EXPECT_NE(std::string(ended.what()).find("rank 0 destroys"), std::string::npos)
          << ended.what();
    });
  }
}

TEST(TwoThreads, AWindowThatEndsBesideAWaitEndsItAlone) {
  run_thread_ranks(2, [](Communicator& c) {
    std::optional<Window> window(c.window(4096));
    if (c.rank() == 0) {
      Window& used = *window;
      const Error ended = beside(
          c, [&](Communicator&) { used.wait_signal(1, 1); }, [&] { window.reset(); });
      EXPECT_EQ(ended.code(), ErrorCode::invalid_usage) << ended.what();
      EXPECT_NE(std::string(ended.what()).find("rank 0 has ended window 1"), std::string::npos)
          << ended.what();
    }
    c.barrier();
  });
}

TEST(TwoThreads, AWindowEndsBesideACallThatDoesNotNeedIt) {
  run_thread_ranks(2, [](Communicator& c) {
    std::optional<Window> window(c.window(4096));
    std::int64_t x = c.rank() + 1;
    c.barrier();
    if (c.rank() == 0) {
      const auto call = [&](Communicator& comm) {
        comm.all_reduce(&x, &x, 1, DataType::int64);
        throw Error(ErrorCode{}, "over");
      };
      std::atomic<bool> ended{false};
      const Error error = beside(c, call, [&] {
        window.reset();
        ended = true;
        c.send(nullptr, 0, DataType::uint8, 1);  // it may come
      });
      EXPECT_TRUE(ended);
      EXPECT_STREQ(error.what(), "over");
    } else {
      c.recv(nullptr, 0, DataType::uint8, 0);
      c.all_reduce(&x, &x, 1, DataType::int64);
    }
    EXPECT_EQ(x, 3);
  });
}

// The first call has moved to the engine, so that neither thread has the turn any more.
TEST(TwoThreads, ADestroyBesideACallThatHasMovedIsRefused) {
  run_thread_ranks(2, [](Communicator& c) {
    std::int64_t x = 7, y = 0;
    if (c.rank() == 1) {
      c.recv(&y, 1, DataType::int64, 0);
      EXPECT_EQ(y, 7);
      while (!c.error()) std::this_thread::sleep_for(5ms);
      return;
    }
    const Error ended = beside(c, blocking_calls()[2], [&] {
      c.send(&x, 1, DataType::int64, 1);
      EXPECT_EQ(error_of([&] { c.destroy(); }).code(), ErrorCode::invalid_usage);
      EXPECT_TRUE(c);
      c.abort("enough");
    });
    EXPECT_EQ(ended.code(), ErrorCode::aborted) << ended.what();
  });
}

// A split keeps its turn, so the second thread has not begun when the first one is ended.
TEST(TwoThreads, AnAbortEndsACallThatWaitsForItsTurn) {
  run_thread_ranks(2, [](Communicator& c) {
    if (c.rank() == 1) {
      while (!c.error()) std::this_thread::sleep_for(5ms);
      return;
    }
    Error second(ErrorCode{}, "");
    std::thread other;
    const Error first = beside(
        c, [](Communicator& comm) { comm.split(0, 0); },
        [&] {
          other = std::thread([&] { second = error_of([&] { c.barrier(); }); });
          std::this_thread::sleep_for(50ms);
          c.abort("enough");
        });
    other.join();
    EXPECT_EQ(first.code(), ErrorCode::aborted) << first.what();
    EXPECT_EQ(second.code(), ErrorCode::aborted) << second.what();
  });
}

/// As a program does: its first thread is in a call, and another one ends the process.
[[noreturn]] void run_program(bool is_global, const Blocks& call) {
  alarm(30);
  std::vector<Options> options(2);
  if (test::number_from("TUTTI_TEST_RANKS_PER_HOST", 0) == 1) {
    options[0].host_id = "a";
    options[1].host_id = "b";
  }
  auto comms = Communicator::create_local(options);
  static std::optional<Communicator> global;
  if (is_global) global.emplace(std::move(comms[0]));
  Communicator& used = is_global ? *global : comms[0];
  std::thread([] {
    std::this_thread::sleep_for(100ms);
    std::exit(7);
  }).detach();
  try {
    call(used);
  } catch (const Error&) {
    // It may end, as it is to.
  }
  std::this_thread::sleep_for(20s);
  std::_Exit(1);
}

TEST(TwoThreads, AnExitBesideABlockingCallEndsTheProcess) {
  for (const bool is_global : {false, true}) {
    for (const Blocks& call : blocking_calls()) {
      const pid_t child = fork();
      if (child == 0) run_program(is_global, call);
      int status = 0;
      waitpid(child, &status, 0);
      EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
      EXPECT_EQ(WEXITSTATUS(status), 7);
    }
  }
}

// On one host nothing in a wait heeds a cancellation; between hosts, looks at sockets do.
TEST(TwoThreads, AThreadThatIsCancelledInACallFailsTheCommunicator) {
  for (const Blocks& call : blocking_calls()) {
    std::atomic<int> outcome{0};  // 1: it went on waiting, 2: it was cancelled
    run_thread_ranks(2, [&](Communicator& c) {
      c.barrier();
      if (c.rank() == 1) {
        while (outcome == 0) std::this_thread::sleep_for(1ms);
        if (outcome == 1) return c.abort("it goes on");
        const Error error = error_of([&] {
          for (int i = 0; i < 3; ++i) c.barrier();
        });
        EXPECT_EQ(error.code(), ErrorCode::aborted) << error.what();
        EXPECT_NE(std::string(error.what()).find("rank 0: its thread was cancelled"),
                  std::string::npos)
            << error.what();
        return;
      }
      struct Part {
        const Blocks& call;
        Communicator& comm;
      } part{call, c};
      pthread_t thread{};
      const auto run = [](void* its) -> void* {
        try {
          static_cast<Part*>(its)->call(static_cast<Part*>(its)->comm);
        } catch (const Error&) {  // of the abort
        }
        return nullptr;
      };
      ASSERT_EQ(pthread_create(&thread, nullptr, run, &part), 0);
      std::this_thread::sleep_for(50ms);
      pthread_cancel(thread);
      timespec end{};
      clock_gettime(CLOCK_REALTIME, &end);
      end.tv_sec += 1;
      void* result = nullptr;
      const bool has_ended = pthread_timedjoin_np(thread, &result, &end) == 0;
      const bool was_cancelled = has_ended && result == PTHREAD_CANCELED;
      outcome = was_cancelled ? 2 : 1;
      if (std::getenv("TUTTI_TEST_RANKS_PER_HOST") != nullptr) {
        EXPECT_TRUE(was_cancelled);
      }
      if (!has_ended) pthread_join(thread, nullptr);
      EXPECT_NE(error_of([&] { c.barrier(); }).code(), ErrorCode{});
    });
  }
}

}  // namespace
}  // namespace tutti
