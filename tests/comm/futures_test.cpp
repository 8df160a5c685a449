// What a Future tells of what was started: deadlines, errors, callbacks, withdrawal. The ranks are
// threads, once as they are and once as if they were processes.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <initializer_list>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "tests/comm/number_calls.h"
#include "tests/comm/started.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using test::all_reduce;
using test::barrier;
using test::error_of;
using test::Numbers;
using test::receive;
using test::run_thread_ranks;
using test::send;

class Futures : public test::TogetherOrApart {};
INSTANTIATE_TEST_SUITE_P(Ranks, Futures, testing::Bool(), test::together_or_apart);

TEST_P(Futures, WaitingHasADeadlineAndMayGoOn) {
  std::latch waited(1);
  run_thread_ranks(2, [&](Communicator& c) {
    if (c.rank() == 1) {
      waited.wait();
      return c.barrier();
    }
    Future f = c.start(barrier);
    EXPECT_FALSE(f.wait_for(0s));
    EXPECT_FALSE(f.wait_for(-1s));
    const auto begin = Clock::now();
    EXPECT_FALSE(f.wait_for(30ms));
    EXPECT_GE(Clock::now() - begin, 30ms);
    EXPECT_FALSE(f.wait_until(Clock::now() + 1ms));
    EXPECT_FALSE(f.ready());
    EXPECT_FALSE(f.error().has_value());
    waited.count_down();
    EXPECT_TRUE(f.wait_for(std::chrono::nanoseconds::max()));
    EXPECT_TRUE(f.ready());
    EXPECT_TRUE(f.wait_until(Clock::time_point::min()));
    f.wait();
    f.wait();
  });
  EXPECT_TRUE(Future().ready());
  EXPECT_TRUE(Future().wait_for(0s));
  EXPECT_FALSE(Future().error().has_value());
}

TEST_P(Futures, AnErrorIsThereForAllWhoAsk) {
  run_thread_ranks(2, [](Communicator& c) {
    Future f = c.start(barrier);
    f.wait();
    EXPECT_FALSE(f.error().has_value());
    if (c.rank() == 1) {
      std::this_thread::sleep_for(20ms);
      return c.abort("enough");
    }
    Future lost = c.start(barrier);
    const Future copy = lost;
    EXPECT_FALSE(copy.error().has_value());
    const Error e = error_of([&] { lost.wait(); });
    EXPECT_EQ(e.code(), ErrorCode::aborted);
    EXPECT_EQ(error_of([&] { lost.wait_for(0s); }).code(), ErrorCode::aborted);
    ASSERT_TRUE(copy.error().has_value());
    EXPECT_EQ(copy.error()->code(), ErrorCode::aborted);
    EXPECT_EQ(copy.error()->rank(), 1);
    EXPECT_EQ(std::string(copy.error()->what()), e.what());
    EXPECT_FALSE(f.error().has_value());
  });
}

TEST_P(Futures, CallbacksRunOnce) {
  std::latch told(1), started(1);
  run_thread_ranks(2, [&](Communicator& c) {
    if (c.rank() == 1) {
      told.wait();
      c.barrier();
      started.wait();
      return c.abort();
    }
    const auto here = std::this_thread::get_id();
    std::vector<int> order;
    std::thread::id where = here;
    Future f = c.start(barrier);
    EXPECT_EQ(error_of([&] { f.on_ready({}); }).code(), ErrorCode::invalid_argument);
    f.on_ready([&] { order.push_back(1); });
    f.on_ready([] { throw std::runtime_error("what a callback throws is logged"); });
    EXPECT_TRUE(order.empty());
    f.on_ready([&] {
      order.push_back(2);
      where = std::this_thread::get_id();
      EXPECT_TRUE(f.ready());
    });
    told.count_down();
    while (!f.ready()) std::this_thread::sleep_for(1ms);  // who waits may run the callbacks itself
    Future lost = c.start(barrier);
    started.count_down();
    EXPECT_EQ(error_of([&] { lost.wait(); }).code(), ErrorCode::aborted);
    // By now the first ones are over.
    EXPECT_EQ(order, (std::vector{1, 2}));
    EXPECT_NE(where, here);
    f.on_ready([&] {
      order.push_back(3);
      where = std::this_thread::get_id();
    });
    EXPECT_EQ(order, (std::vector{1, 2, 3}));
    EXPECT_EQ(where, here);
    f.on_ready([] { throw 1; });
    ErrorCode code{};
    lost.on_ready([&] { code = lost.error()->code(); });
    EXPECT_EQ(code, ErrorCode::aborted);
    EXPECT_EQ(order, (std::vector{1, 2, 3}));
  });
}

TEST_P(Futures, ACallbackMayStartTheNextCall) {
  run_thread_ranks(2, [](Communicator& c) {
    Communicator other = c.split(0, c.rank());
    Numbers x{1}, y{1};
    std::latch done(1);
    int left = 20;
    std::function<void()> next = [&] {
      if (--left == 0) return done.count_down();
      Communicator& one = left % 2 == 0 ? c : other;
      one.start(all_reduce(x)).on_ready(next);
    };
    c.start(all_reduce(x)).on_ready(next);
    done.wait();
    EXPECT_EQ(x, Numbers{1 << 20});
    c.run(all_reduce(y));
    EXPECT_EQ(y, Numbers{2});
  });
}

TEST_P(Futures, ACallbackThatWouldBlockIsTold) {
  run_thread_ranks(2, [](Communicator& c) {
    Communicator other = c.split(0, c.rank());
    if (c.rank() == 1) {
      c.barrier();
      c.barrier();
      return other.barrier();
    }
    Future late = other.start(barrier);
    ErrorCode blocking{}, waiting{}, meeting{};
    Future f = c.start(barrier);
    std::latch done(1);
    f.on_ready([&] {
      blocking = error_of([&] { other.barrier(); }).code();
      waiting = error_of([&] { late.wait_for(1s); }).code();
      for (const auto& meets : std::initializer_list<std::function<void()>>{
               [&] { other.grow(UniqueId{}, 3); }, [&] { other.shrink({}); },
               [&] { other.reconfigure(std::vector{other.handle()}, 7); },
               [&] { other.release_memory(); }}) {
        meeting = error_of(meets).code();
        if (meeting != ErrorCode::invalid_usage) break;
      }
      done.count_down();
    });
    done.wait();
    EXPECT_EQ(blocking, ErrorCode::invalid_usage);
    EXPECT_EQ(waiting, ErrorCode::invalid_usage);
    EXPECT_EQ(meeting, ErrorCode::invalid_usage);
    c.barrier();
    late.wait();
  });
}

TEST_P(Futures, ARecvIsWithdrawnAndItsMessageGoesToTheNext) {
  run_thread_ranks(2, [](Communicator& c) {
    Numbers first(3, -1), second(3, -1), third(3, -1);
    for (int round = 0; round < 50; ++round) {
      if (c.rank() == 1) {
        c.barrier();
        Numbers x = {round, round + 1, round + 2};
        c.send(x.data(), x.size(), DataType::int64, 0);
        c.barrier();
        continue;
      }
      Future a = c.start(receive(first, 1));
      Future b = c.start(receive(second, 1));
      Future d = c.start(receive(third, 1));
      if (round % 2 == 0) std::this_thread::sleep_for(1ms);  // it waits already, or does not yet
      c.withdraw(a);
      c.withdraw(d);
      EXPECT_EQ(error_of([&] { a.wait(); }).code(), ErrorCode::aborted);
      c.start(barrier).wait();
      b.wait();
      EXPECT_EQ(second, Numbers({round, round + 1, round + 2}));
      EXPECT_EQ(error_of([&] { d.wait(); }).code(), ErrorCode::aborted);
      EXPECT_EQ(first, Numbers(3, -1));
      EXPECT_EQ(third, Numbers(3, -1));
      c.withdraw(b);  // too late
      EXPECT_FALSE(b.error());
      c.barrier();
    }
    EXPECT_FALSE(c.error());
  });
}

TEST_P(Futures, OnlyARecvIsWithdrawn) {
  run_thread_ranks(2, [](Communicator& c) {
    Numbers x = {1, 2, 3}, y(3);
    if (c.rank() == 1) {
      std::this_thread::sleep_for(20ms);
      c.all_reduce(x.data(), y.data(), x.size(), DataType::int64);
      c.recv(y.data(), y.size(), DataType::int64, 0);
      EXPECT_EQ(y, x);
      return;
    }
    Future sum = c.start({.collective = Collective::all_reduce,
                          .in = x.data(),
                          .out = y.data(),
                          .count = x.size(),
                          .type = DataType::int64});
    const Error of_sum = error_of([&] { c.withdraw(sum); });
    sum.wait();
    EXPECT_EQ(y, Numbers({2, 4, 6}));
    EXPECT_EQ(of_sum.code(), ErrorCode::invalid_usage);
    EXPECT_STREQ(of_sum.what(), "withdraw() of all_reduce: only a started recv can be withdrawn");
    c.send(x.data(), x.size(), DataType::int64, 1);
  });
}

TEST_P(Futures, ACallMayHaveATimeoutOfItsOwn) {
  Options options;
  options.timeout = 60s;
  run_thread_ranks(2, options, [](Communicator& c) {
    if (c.rank() == 1) {
      while (!c.error()) std::this_thread::sleep_for(10ms);
      return;
    }
    Numbers x(1);
    Call call = receive(x, 1);
    call.timeout = 200ms;
    const Error error = error_of([&] { c.start(call).wait(); });
    EXPECT_EQ(error.code(), ErrorCode::timed_out);
    EXPECT_NE(std::string(error.what()).find("timeout of 0.2 s"), std::string::npos);
  });
}

}  // namespace
}  // namespace tutti
