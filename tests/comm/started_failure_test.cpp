// What is started and not waited for, where something goes wrong or the rank leaves. The ranks are
// threads, once as they are and once as if they were processes.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <latch>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/comm/number_calls.h"
#include "tests/comm/started.h"
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
using test::error_of;
using test::Numbers;
using test::parts_of;
using test::receive;
using test::run_thread_ranks;
using test::send;

class StartedFailure : public test::TogetherOrApart {};
INSTANTIATE_TEST_SUITE_P(Ranks, StartedFailure, testing::Bool(), test::together_or_apart);

// --- Failure -------------------------------------------------------------------------------------

TEST_P(StartedFailure, AFailureEndsWhatItsCommunicatorHasStarted) {
  std::latch started(1), failed(2);
  run_thread_ranks(2, [&](Communicator& c) {
    Communicator bad = c.split(0, c.rank());
    Communicator good = c.split(0, c.rank());
    Numbers x{1}, late{0}, later{0}, y{1};
    std::vector<Future> lost;
    std::optional<Future> waits;
    if (c.rank() == 0) {
      lost.push_back(bad.start(all_reduce(x)));
      lost.push_back(bad.start(barrier));
      lost.push_back(bad.start(receive(late, 1)));
      waits = good.start(receive(later, 1));
      started.count_down();
    } else {
      started.wait();
      bad.abort("enough");
    }
    for (Future& f : lost) {
      const Error e = error_of([&] { f.wait(); });
      EXPECT_EQ(e.code(), ErrorCode::aborted) << e.what();
      EXPECT_EQ(e.rank(), 1);
      EXPECT_NE(std::string(e.what()).find("enough"), std::string::npos) << e.what();
    }
    if (waits) {
      EXPECT_FALSE(waits->ready());
    }
    failed.arrive_and_wait();
    EXPECT_EQ(error_of([&] { bad.start(barrier); }).code(), ErrorCode::aborted);
    if (c.rank() == 1) good.start(send(y, 0)).wait();
    for (int i = 0; i < 10; ++i) {
      good.start(barrier).wait();
      c.start(barrier).wait();
    }
    if (waits) waits->wait();
  });
}

TEST_P(StartedFailure, ADeadlineIsKeptWhileOthersMove) {
  run_thread_ranks(2, [](Communicator& c) {
    Options options;
    options.timeout = 200ms;
    Communicator timed = c.split(0, c.rank(), options);
    Numbers late{0};
    std::optional<Future> waits;
    const auto begin = Clock::now();
    if (c.rank() == 0) waits = timed.start(receive(late, 1));
    // The ranks go on with this as long as that waits.
    std::vector<std::pair<Future, std::unique_ptr<Numbers>>> moving;
    for (bool goes_on = true; goes_on;) {
      moving.clear();
      for (int i = 0; i < 20; ++i) {
        auto x = std::make_unique<Numbers>(5'000, 1);
        const Call call = all_reduce(*x);
        moving.emplace_back(c.start(call), std::move(x));
      }
      std::int64_t more = 0;
      if (waits) more = waits->ready() || Clock::now() - begin > 20s ? 0 : 1;
      goes_on = false;
      Numbers all{more};
      c.start(all_reduce(all)).wait();
      goes_on = all[0] > 0;
    }
    for (auto& [future, x] : moving) {
      future.wait();
      EXPECT_EQ(*x, Numbers(x->size(), 2));
    }
    if (!waits) return;
    EXPECT_GE(Clock::now() - begin, 200ms);
    const Error e = error_of([&] { waits->wait(); });
    EXPECT_EQ(e.code(), ErrorCode::timed_out) << e.what();
  });
}

TEST_P(StartedFailure, ARankThatLeavesFailsThoseThatWaitForIt) {
  run_thread_ranks(2, [](Communicator& c) {
    Communicator other = c.split(0, c.rank());
    if (c.rank() == 1) {
      other.destroy();
      return c.barrier();
    }
    Future f = other.start(barrier);
    const Error e = error_of([&] { f.wait(); });
    EXPECT_EQ(e.code(), ErrorCode::peer_lost) << e.what();
    EXPECT_EQ(e.rank(), 1);
    c.barrier();
  });
}

TEST_P(StartedFailure, WhatIsWrongIsRefusedAndHarmsNothing) {
  run_thread_ranks(2, [](Communicator& c) {
    Numbers x(4, 1);
    const auto refused = [&](const Call& call) { return error_of([&] { c.start(call); }).code(); };
    Call wrong = all_reduce(x);
    wrong.out = x.data() + 1;
    EXPECT_EQ(refused(wrong), ErrorCode::invalid_argument);
    EXPECT_EQ(refused(broadcast(x, 2)), ErrorCode::invalid_argument);
    EXPECT_EQ(refused(send(x, c.rank())), ErrorCode::invalid_usage);
    EXPECT_EQ(error_of([&] { group([&] { c.start(barrier); }); }).code(), ErrorCode::invalid_usage);
    c.start(all_reduce(x)).wait();
    EXPECT_EQ(x, Numbers(4, 2));
  });
}

// --- Leaving -------------------------------------------------------------------------------------

TEST_P(StartedFailure, DestroyingFinishesWhatWasStarted) {
  run_thread_ranks(3, [](Communicator& c) {
    std::vector<Communicator> parts = parts_of(c, 3);
    std::vector<Numbers> x(30, Numbers(20'000, 1));
    std::vector<Future> futures;
    for (std::size_t i = 0; i < x.size(); ++i) {
      futures.push_back(parts[i % parts.size()].start(all_reduce(x[i])));
    }
    if (c.rank() == 1) std::this_thread::sleep_for(20ms);
    for (Communicator& part : parts) part.destroy();
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_TRUE(futures[i].ready());
      EXPECT_EQ(futures[i].error(), std::nullopt);
      EXPECT_EQ(x[i], Numbers(20'000, 3));
    }
    c.barrier();
  });
}

TEST_P(StartedFailure, ACallbackMayHaveTheLastHoldOfACommunicator) {
  std::vector<Communicator> all = Communicator::create_local(2);
  std::vector<std::weak_ptr<Communicator>> held;
  Numbers x(2, 1);
  std::vector<Future> last;
  for (std::size_t r = 0; r < 2; ++r) {
    auto c = std::make_shared<Communicator>(std::move(all[r]));
    held.push_back(c);
    Call call = all_reduce(x);
    call.in = call.out = &x[r];
    call.count = 1;
    Future f = c->start(call);
    call.op = ReduceKind::max;
    last.push_back(c->start(call));
    f.on_ready([c] {});
  }
  for (Future& f : last) f.wait();
  EXPECT_EQ(x, Numbers(2, 2));
  EXPECT_TRUE(eventually([&] { return held[0].expired() && held[1].expired(); }));
  EXPECT_TRUE(eventually([] { return engine_threads() == 0; }));
}

}  // namespace
}  // namespace tutti
