// Messages that the receiver copies from the sender's memory: those of one process, and those from
// windows between ranks that treat each other as processes (TUTTI_APART). The ranks share a core,
// or have one each.
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "core/memory.h"
#include "tests/comm/call_value.h"
#include "tests/support/clean_environment.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::call_value;
using test::error_of;
using test::run_thread_ranks;

using NumbersInWindow = std::vector<std::int32_t, Allocator<std::int32_t>>;
constexpr std::size_t kPulled = 300'001;  // a few tiles, the last one odd

void fill(NumbersInWindow& window, int rank, int message) {
  for (std::size_t i = 0; i < window.size(); ++i) window[i] = call_value(rank, i, message);
}
bool is_message(const NumbersInWindow& window, int rank, int message) {
  for (std::size_t i = 0; i < window.size(); ++i) {
    if (window[i] != call_value(rank, i, message)) return false;
  }
  return true;
}

Call message_call(bool sends, NumbersInWindow& memory, int peer) {
  Call call;
  call.collective = Collective::send_recv;
  call.sends = sends;
  call.in = sends ? memory.data() : nullptr;
  call.out = sends ? nullptr : memory.data();
  call.count = memory.size();
  call.type = DataType::int32;
  call.peer = peer;
  return call;
}

/// Long messages from rank 0 to rank 1, of which the first go through slots where each has a core.
void send_first_ones(Communicator& c) {
  NumbersInWindow memory(kPulled);
  for (int message = 0; message < 10; ++message) {
    if (c.rank() == 0) c.send(memory.data(), kPulled, DataType::int32, 1);
    if (c.rank() == 1) c.recv(memory.data(), kPulled, DataType::int32, 0);
  }
}

class Pull : public testing::TestWithParam<std::tuple<bool, bool>> {
 protected:
  Pull() {
    sched_getaffinity(0, sizeof all_, &all_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int c = 0; c < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++c) {
      if (CPU_ISSET(c, &all_)) CPU_SET(c, &one);
    }
    if (std::get<1>(GetParam())) sched_setaffinity(0, sizeof one, &one);
  }
  ~Pull() override { sched_setaffinity(0, sizeof all_, &all_); }

  cpu_set_t all_;
  Environment environment_{
      {{"TUTTI_APART", std::get<0>(GetParam()) ? "1" : "0"}, {"TUTTI_CMA", "0"}}};
};
std::string name_of(const testing::TestParamInfo<std::tuple<bool, bool>>& ranks) {
  return std::string(std::get<0>(ranks.param) ? "OfRanksApart" : "OfOneProcess") +
         (std::get<1>(ranks.param) ? "OnOneCore" : "");
}
INSTANTIATE_TEST_SUITE_P(Messages, Pull, testing::Combine(testing::Bool(), testing::Bool()),
                         name_of);

TEST_P(Pull, ASenderThatReturnsMayWriteItsMemory) {
  run_thread_ranks(2, [](Communicator& c) {
    NumbersInWindow memory(kPulled);
    for (int message = 0; message < 40; ++message) {
      if (c.rank() == 0) {
        fill(memory, 0, message);
        c.send(memory.data(), kPulled, DataType::int32, 1);
      } else {
        if (message % 5 == 0) std::this_thread::sleep_for(5ms);  // the sender waits
        c.recv(memory.data(), kPulled, DataType::int32, 0);
        ASSERT_TRUE(is_message(memory, 0, message)) << message;
      }
    }
  });
}

TEST_P(Pull, LongAndShortMessagesKeepTheirOrder) {
  run_thread_ranks(3, [](Communicator& c) {
    const int next = (c.rank() + 1) % 3, last = (c.rank() + 2) % 3;
    NumbersInWindow in(kPulled), out(kPulled);
    fill(in, c.rank(), 7);
    std::int32_t before = c.rank(), after = 10 + c.rank(), first = -1, third = -1;
    for (int round = 0; round < 12; ++round) {
      std::ranges::fill(out, 0);
      group([&] {
        c.send(&before, 1, DataType::int32, next);
        c.send(in.data(), kPulled, DataType::int32, next);
        c.send(&after, 1, DataType::int32, next);
        c.recv(&first, 1, DataType::int32, last);
        c.recv(out.data(), kPulled, DataType::int32, last);
        c.recv(&third, 1, DataType::int32, last);
      });
      EXPECT_EQ(first, last);
      EXPECT_EQ(third, 10 + last);
      EXPECT_TRUE(is_message(out, last, 7));
    }
  });
}

TEST_P(Pull, StartedMessagesCross) {
  run_thread_ranks(2, [](Communicator& c) {
    const int peer = 1 - c.rank();
    constexpr int kMessages = 12;
    std::vector<NumbersInWindow> in(kMessages, NumbersInWindow(kPulled)),
        out(kMessages, NumbersInWindow(kPulled));
    std::vector<Future> futures;
    for (int m = 0; m < kMessages; ++m) {
      fill(in[static_cast<std::size_t>(m)], c.rank(), m);
      futures.push_back(c.start(message_call(true, in[static_cast<std::size_t>(m)], peer)));
    }
    for (NumbersInWindow& window : out)
      futures.push_back(c.start(message_call(false, window, peer)));
    for (Future& f : futures) f.wait();
    for (int m = 0; m < kMessages; ++m) {
      EXPECT_TRUE(is_message(out[static_cast<std::size_t>(m)], peer, m)) << m;
    }
  });
}

TEST_P(Pull, MemoryThatIsNoWindowAnyMoreIsSentAllTheSame) {
  run_thread_ranks(2, [](Communicator& c) {
    std::vector<std::int32_t> plain(kPulled);
    NumbersInWindow window(kPulled);
    for (int message = 0; message < 30; ++message) {
      const bool from_window = message % 3 == 1;
      if (c.rank() == 0) {
        fill(window, 0, message);
        std::ranges::copy(window, plain.begin());
        c.send(from_window ? window.data() : plain.data(), kPulled, DataType::int32, 1);
        if (message == 4) NumbersInWindow(kPulled).swap(window);
      } else {
        c.recv(window.data(), kPulled, DataType::int32, 0);
        ASSERT_TRUE(is_message(window, 0, message)) << message;
      }
    }
  });
}

TEST_P(Pull, ACountThatDiffersIsAMismatchThatNamesBoth) {
  for (const std::size_t expected : {kPulled - 1, std::size_t{1}}) {
    run_thread_ranks(2, [&](Communicator& c) {
      send_first_ones(c);
      NumbersInWindow memory(kPulled);
      const Error e = error_of([&] {
        if (c.rank() == 0) {
          c.send(memory.data(), kPulled, DataType::int32, 1);
          c.barrier();
        } else {
          c.recv(memory.data(), expected, DataType::int32, 0);
        }
      });
      EXPECT_EQ(e.code(), ErrorCode::mismatch) << e.what();
      EXPECT_NE(std::string(e.what()).find("int32 x 300001"), std::string::npos) << e.what();
    });
  }
}

TEST_P(Pull, ASenderWhoseReceiverDoesNotComeSaysForWhomItWaits) {
  Options options;
  options.timeout = 200ms;
  options.slots = 2;
  run_thread_ranks(2, options, [](Communicator& c) {
    send_first_ones(c);
    NumbersInWindow memory(kPulled);
    const Error e = error_of([&] {
      if (c.rank() == 1) {
        std::this_thread::sleep_for(1s);
        c.barrier();
      } else {
        c.send(memory.data(), kPulled, DataType::int32, 1);
      }
    });
    EXPECT_EQ(e.code(), ErrorCode::timed_out) << e.what();
    if (c.rank() == 0) {
      EXPECT_EQ(e.rank(), 1);
      // Where each has a core, the clock may find that it had better go through slots.
      const char* const text = std::get<1>(GetParam())
                                   ? "send_recv (int32 x 300001) for rank 1 to take"
                                   : "send_recv (int32 x 300001)";
      EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
    }
  });
}

TEST_P(Pull, AnAbortFreesASender) {
  Options options;
  options.slots = 2;
  run_thread_ranks(2, options, [](Communicator& c) {
    send_first_ones(c);
    NumbersInWindow memory(kPulled);
    const Error e = error_of([&] {
      if (c.rank() == 1) {
        std::this_thread::sleep_for(50ms);
        c.abort("enough");
        c.barrier();
      } else {
        c.send(memory.data(), kPulled, DataType::int32, 1);
      }
    });
    EXPECT_EQ(e.code(), ErrorCode::aborted) << e.what();
    EXPECT_EQ(e.rank(), 1);
  });
}

}  // namespace
}  // namespace tutti
