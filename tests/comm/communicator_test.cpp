// The communicator beyond plain results: groups, futures, split, bad input, abort.
#include "comm/communicator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/memory.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::error_of;
using test::run_thread_ranks;

TEST(Group, CrossingLargeMessagesProgressTogether) {
  constexpr std::size_t kCount = 1 << 20;  // far more than the slots hold
  run_thread_ranks(3, [](Communicator& c) {
    const int n = c.size();
    std::vector<std::vector<int>> in(3), out(3, std::vector<int>(kCount));
    for (int p = 0; p < n; ++p) {
      in[static_cast<std::size_t>(p)].resize(kCount);
      std::iota(in[static_cast<std::size_t>(p)].begin(), in[static_cast<std::size_t>(p)].end(),
                1000 * c.rank() + 100 * p);
    }
    group([&] {
      for (int p = 0; p < n; ++p) {
        c.send(in[static_cast<std::size_t>(p)].data(), kCount, DataType::int32, p);
      }
      for (int p = 0; p < n; ++p) {
        c.recv(out[static_cast<std::size_t>(p)].data(), kCount, DataType::int32, p);
      }
    });
    for (int p = 0; p < n; ++p) {
      for (std::size_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(out[static_cast<std::size_t>(p)][i],
                  1000 * p + 100 * c.rank() + static_cast<int>(i));
      }
    }
  });
}

TEST(Group, MessagesOfAPairMatchInOrder) {
  run_thread_ranks(2, [](Communicator& c) {
    std::vector<int> got(5, -1), sent(5);
    std::iota(sent.begin(), sent.end(), 10 * c.rank());
    const int peer = 1 - c.rank();
    group([&] {
      for (int i = 0; i < 5; ++i) {
        c.send(&sent[static_cast<std::size_t>(i)], 1, DataType::int32, peer);
        c.recv(&got[static_cast<std::size_t>(i)], 1, DataType::int32, peer);
      }
      c.send(nullptr, 0, DataType::float64, peer);
      c.recv(nullptr, 0, DataType::float64, peer);
    });
    for (int i = 0; i < 5; ++i) EXPECT_EQ(got[static_cast<std::size_t>(i)], 10 * peer + i);
  });
}

TEST(Group, OneThreadDrivesSeveralRanks) {
  std::vector<Communicator> comms = Communicator::create_local(4);
  std::vector<float> in = {1, 2, 4, 8};
  std::vector<float> out(4), all(16);
  group([&] {
    for (std::size_t r = 0; r < 4; ++r) {
      comms[r].all_reduce(&in[r], &out[r], 1, DataType::float32);
      comms[r].all_gather(&in[r], &all[4 * r], 1, DataType::float32);
    }
  });
  EXPECT_EQ(out, std::vector<float>(4, 15.0F));
  EXPECT_EQ(all, (std::vector<float>{1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8, 1, 2, 4, 8}));
}

TEST(Group, AMessageToOneselfNeedsItsPartner) {
  run_thread_ranks(2, [](Communicator& c) {
    int x = 1;
    EXPECT_EQ(error_of([&] { c.send(&x, 1, DataType::int32, c.rank()); }).code(),
              ErrorCode::invalid_usage);
    EXPECT_EQ(error_of([&] { group([&] { c.send(&x, 1, DataType::int32, c.rank()); }); }).code(),
              ErrorCode::invalid_usage);
    EXPECT_EQ(error_of([] { group_end(); }).code(), ErrorCode::invalid_usage);
    c.barrier();  // still usable
  });
}

TEST(Futures, KeepTheOrderOfTheCalls) {
  run_thread_ranks(3, [](Communicator& c) {
    std::vector<std::int64_t> x(1000, c.rank() + 1);
    std::vector<Future> futures;
    for (int i = 0; i < 20; ++i) {
      futures.push_back(c.start({.collective = Collective::all_reduce,
                                 .in = x.data(),
                                 .out = x.data(),
                                 .count = x.size(),
                                 .type = DataType::int64}));
    }
    c.all_reduce(x.data(), x.data(), x.size(), DataType::int64);
    for (Future& f : futures) EXPECT_TRUE(f.ready());
    for (Future& f : futures) f.wait();
    std::int64_t expected = 6;
    for (int i = 0; i < 20; ++i) expected *= 3;
    for (const std::int64_t v : x) ASSERT_EQ(v, expected);
  });
}

TEST(Split, FormsCommunicatorsByColorAndKey) {
  run_thread_ranks(5, [](Communicator& c) {
    Communicator half = c.split(c.rank() % 2, -c.rank());
    ASSERT_EQ(half.size(), c.rank() % 2 == 0 ? 3 : 2);
    EXPECT_EQ(half.rank(), (c.size() - 1 - c.rank()) / 2);
    int mine = c.rank();
    std::vector<int> members(static_cast<std::size_t>(half.size()));
    half.all_gather(&mine, members.data(), 1, DataType::int32);
    EXPECT_EQ(members, c.rank() % 2 == 0 ? (std::vector<int>{4, 2, 0}) : (std::vector<int>{3, 1}));
    Communicator none = c.split(c.rank() == 3 ? 0 : -1, 0);
    EXPECT_EQ(static_cast<bool>(none), c.rank() == 3);
    if (none) none.barrier();
    Communicator again = half.split(0, 0);
    again.barrier();
    EXPECT_EQ(error_of([&] {
                none.destroy();
                none.barrier();
              }).code(),
              ErrorCode::invalid_usage);
    c.barrier();
  });
}

TEST(BadInput, IsRefusedAndHarmsNothing) {
  run_thread_ranks(2, [](Communicator& c) {
    std::vector<float> a(64, 1.0F), b(64);
    const auto refused = [&](auto&& call) {
      const Error e = error_of(call);
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
    };
    refused([&] { c.all_reduce(nullptr, b.data(), 4, DataType::float32); });
    refused([&] { c.all_reduce(a.data(), nullptr, 4, DataType::float32); });
    refused([&] { c.all_reduce(a.data(), b.data(), 4, static_cast<DataType>(77)); });
    refused([&] {
      c.run(
          {.collective = Collective::send_recv, .in = a.data(), .count = 4, .peer = 1 - c.rank()});
    });
    refused([&] {
      c.all_reduce(a.data(), b.data(), 4, DataType::float32, static_cast<ReduceKind>(9));
    });
    refused([&] { c.all_reduce(a.data(), a.data() + 1, 4, DataType::float32); });
    refused([&] { c.all_gather(a.data(), a.data() + 1, 4, DataType::float32); });
    refused([&] { c.all_to_all(a.data(), a.data(), 4, DataType::float32); });
    refused([&] { c.broadcast(a.data(), b.data(), 4, DataType::float32, 2); });
    refused([&] { c.broadcast(a.data(), b.data(), 4, DataType::float32, -1); });
    refused([&] { c.send(a.data(), 4, DataType::float32, 5); });
    refused([&] {
      c.all_reduce(a.data(), b.data(), std::numeric_limits<std::size_t>::max(), DataType::float64);
    });
    refused([&] {
      c.all_gather(a.data(), b.data(), std::numeric_limits<std::size_t>::max() / 8,
                   DataType::float64);
    });
    const std::vector<std::size_t> one = {1};
    refused([&] { c.all_gather_v(a.data(), b.data(), one, {}, DataType::float32); });
    const std::vector<std::size_t> two = {2, 2};
    const std::vector<std::size_t> overlapping = {0, 1};
    refused([&] { c.all_gather_v(a.data(), b.data(), two, overlapping, DataType::float32); });
    refused([&] { c.run({.collective = static_cast<Collective>(200)}); });
    // What a call does not use has to make sense, too.
    refused([&] { c.run({.collective = Collective::barrier, .type = static_cast<DataType>(99)}); });
    refused([&] { c.run({.collective = Collective::barrier, .label = 65535}); });
    refused([&] { c.run({.collective = Collective::barrier, .count = SIZE_MAX}); });
    refused([&] { c.run({.collective = Collective::barrier, .compressed = true}); });
    refused([&] {
      c.run({Collective::broadcast, a.data(), b.data(), 4, DataType::float32,
             static_cast<ReduceKind>(9)});
    });
    c.all_reduce(a.data(), b.data(), 64, DataType::float32);
    for (const float v : b) ASSERT_EQ(v, 2.0F);
  });
  EXPECT_EQ(error_of([] { Communicator().barrier(); }).code(), ErrorCode::invalid_usage);
  EXPECT_EQ(error_of([] { Communicator::create_local(0); }).code(), ErrorCode::invalid_argument);
}

TEST(Abort, FreesEveryWaitAndStays) {
  run_thread_ranks(3, [](Communicator& c) {
    if (c.rank() == 2) {
      std::this_thread::sleep_for(50ms);
      c.abort("enough");
    }
    const auto start = std::chrono::steady_clock::now();
    const Error e = error_of([&] {
      if (c.rank() != 2) c.barrier();
      c.barrier();
    });
    EXPECT_EQ(e.code(), ErrorCode::aborted);
    EXPECT_EQ(e.rank(), 2);
    EXPECT_NE(std::string(e.what()).find("enough"), std::string::npos);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 1s);
  });
}

TEST(Abort, FromAnotherThreadOfTheSameRank) {
  run_thread_ranks(2, [](Communicator& c) {
    if (c.rank() == 1) {
      std::this_thread::sleep_for(200ms);
      EXPECT_EQ(error_of([&] { c.barrier(); }).code(), ErrorCode::aborted);
      return;
    }
    std::jthread helper([&] {
      std::this_thread::sleep_for(30ms);
      c.abort();
    });
    int x = 0;
    EXPECT_EQ(error_of([&] { c.recv(&x, 1, DataType::int32, 1); }).code(), ErrorCode::aborted);
  });
}

TEST(Health, CanBeAskedForAtAnyTime) {
  EXPECT_EQ(error_of([] { static_cast<void>(Communicator().error()); }).code(),
            ErrorCode::invalid_usage);
  run_thread_ranks(3, [](Communicator& c) {
    EXPECT_FALSE(c.error().has_value());
    c.barrier();
    std::optional<Error> seen;
    std::jthread helper([&] {  // while this rank is in a call
      while (!(seen = c.error())) std::this_thread::sleep_for(1ms);
    });
    if (c.rank() == 2) {
      std::this_thread::sleep_for(50ms);  // the others have left the first barrier by then
      c.abort("enough");
    } else {
      EXPECT_EQ(error_of([&] { c.barrier(); }).code(), ErrorCode::aborted);
    }
    helper.join();
    EXPECT_EQ(seen->code(), ErrorCode::aborted);
    EXPECT_EQ(seen->rank(), 2);
    EXPECT_EQ(std::string(seen->what()), error_of([&] { c.barrier(); }).what());
  });
}

TEST(Health, ARankThatLeftHarmsNobodyYet) {
  run_thread_ranks(2, [](Communicator& c) {
    c.barrier();
    if (c.rank() == 1) return c.destroy();
    EXPECT_FALSE(c.error().has_value());
  });
}

TEST(Deadline, IsKeptWhereTheUserSetsOne) {
  Options options;
  options.timeout = 200ms;
  run_thread_ranks(2, options, [](Communicator& c) {
    if (c.rank() == 1) std::this_thread::sleep_for(1s);
    const Error e = error_of([&] { c.barrier(); });
    EXPECT_EQ(e.code(), ErrorCode::timed_out) << e.what();
    EXPECT_NE(std::string(e.what()).find("barrier"), std::string::npos) << e.what();
  });
}

TEST(Leaving, IsToldToThoseWhoWait) {
  run_thread_ranks(2, [](Communicator& c) {
    c.barrier();
    if (c.rank() == 1) return c.destroy();
    const Error e = error_of([&] { c.barrier(); });
    EXPECT_EQ(e.code(), ErrorCode::peer_lost) << e.what();
    EXPECT_EQ(e.rank(), 1);
  });
}

TEST(Leaving, IsToldInTheNumbersOfEachCommunicator) {
  run_thread_ranks(4, [](Communicator& c) {
    Communicator reversed = c.split(0, -c.rank());
    Communicator others = c.split(c.rank() == 1 ? -1 : 0, c.rank());
    c.barrier();
    if (c.rank() == 1) {
      reversed.destroy();
      return c.destroy();
    }
    const auto calls = [&] {
      c.barrier();
      reversed.barrier();
      others.barrier();
    };
    const Error e = error_of([&] { group(calls); });
    EXPECT_EQ(e.code(), ErrorCode::peer_lost) << e.what();
    const Error of_c = error_of([&] { c.barrier(); });
    const Error of_reversed = error_of([&] { reversed.barrier(); });
    const Error of_others = error_of([&] { others.barrier(); });
    EXPECT_EQ(of_c.rank(), 1) << of_c.what();
    EXPECT_EQ(of_reversed.rank(), 2) << of_reversed.what();
    EXPECT_EQ(of_others.rank(), -1) << of_others.what();  // it is not there
  });
}

TEST(Shrinking, WorksAfterAFailureToo) {
  run_thread_ranks(4, [](Communicator& c) {
    const auto sum = [](Communicator& comm) {
      std::int32_t x = 1;
      comm.all_reduce(&x, &x, 1, DataType::int32);
      return x;
    };
    const std::vector<int> first{0}, last{3};
    // Others may have been left at another time.
    if (c.rank() != 3) {
      Communicator rest = c.shrink(last);
      EXPECT_EQ(sum(rest), 3);
    }
    EXPECT_EQ(error_of([&] { c.shrink(std::vector<int>{c.rank()}); }).code(),
              ErrorCode::invalid_argument);
    if (c.rank() == 0) return c.destroy();  // it leaves, and the others fail
    EXPECT_EQ(error_of([&] { sum(c); }).code(), ErrorCode::peer_lost);
    Communicator three = c.shrink(first);
    EXPECT_EQ(three.rank(), c.rank() - 1);
    EXPECT_EQ(sum(three), 3);
    // Again, and of the new one.
    Communicator again = c.shrink(first);
    EXPECT_EQ(sum(again), 3);
    if (three.rank() == 1) return;
    Communicator two = three.shrink(std::vector<int>{1});
    EXPECT_EQ(two.rank(), three.rank() / 2);
    EXPECT_EQ(sum(two), 2);
  });
}

TEST(Shrinking, WithAQuorumIsForTheMajorityOrForHalfOfThemWithRankZero) {
  run_thread_ranks(4, [](Communicator& c) {
    Options options;
    options.quorum = true;
    const auto shrink = [&](const std::vector<int>& excluded) {
      return c.shrink(excluded, options).size();
    };
    if (c.rank() > 0) {
      EXPECT_EQ(shrink({0}), 3);
    }
    if (c.rank() < 2) {
      EXPECT_EQ(shrink({2, 3}), 2);
      EXPECT_EQ(error_of([&] { shrink({1 - c.rank(), 2, 3}); }).code(), ErrorCode::invalid_usage);
    } else {
      const Error e = error_of([&] { shrink({0, 1}); });
      EXPECT_EQ(e.code(), ErrorCode::invalid_usage);
      EXPECT_NE(std::string(e.what()).find("2 of 4 ranks"), std::string::npos) << e.what();
    }
  });
}

TEST(UsersPlan, RunsWhenItIsProvedOnly) {
  const std::string good = R"(tutti plan 1
all_reduce exchange  ranks 2  pieces 1  slots 1  lanes 1
rank 0  tmp 0
  lane 0
    out[0], to(1) <- in[0]
    out[0] <= out[0] + from(1)
rank 1  tmp 0
  lane 0
    out[0], to(0) <- in[0]
    out[0] <= from(0) + out[0]
)";
  std::string bad = good;
  const std::string last = "from(0) + out[0]";
  bad.replace(bad.find(last), last.size(), "out[0] + from(0)");
  run_thread_ranks(2, [&](Communicator& c) {
    const Error e = error_of([&] { c.use_plan(bad); });
    EXPECT_EQ(e.code(), ErrorCode::unproven_plan) << e.what();
    c.use_plan(good);
    std::vector<float> x(100'000, 1.0F + static_cast<float>(c.rank()));
    c.all_reduce(x.data(), x.data(), x.size(), DataType::float32);
    for (const float v : x) ASSERT_EQ(v, 3.0F);
  });
}

TEST(Predict, ItRunsNothingAndAsksNobody) {
  run_thread_ranks(3, [](Communicator& c) {
    std::vector<float> x(1'000'000, 1.0F + static_cast<float>(c.rank()));
    Call call{Collective::all_reduce, x.data(), x.data(), x.size(), DataType::float32};
    if (c.rank() == 0) {
      const auto large = c.predict(call);
      call.count = 10;
      EXPECT_LT(0ns, c.predict(call));
      EXPECT_LT(c.predict(call), large);
      call.count = 0;
      EXPECT_EQ(c.predict(call), 0ns);
      EXPECT_LT(0ns, c.predict({}));  // a barrier
      call.collective = Collective::broadcast;
      call.root = 3;
      EXPECT_EQ(error_of([&] { c.predict(call); }).code(), ErrorCode::invalid_argument);
      call.collective = Collective::send_recv;
      EXPECT_EQ(error_of([&] { c.predict(call); }).code(), ErrorCode::invalid_argument);
      for (const float v : x) ASSERT_EQ(v, 1.0F);
    }
    c.all_reduce(x);
    for (const float v : x) ASSERT_EQ(v, 6.0F);
  });
}

TEST(Windows, NewPointersAndReusedAddressesAreRight) {
  run_thread_ranks(2, [](Communicator& c) {
    for (int round = 0; round < 30; ++round) {
      const std::size_t count = 100'000 + 1000 * static_cast<std::size_t>(round);
      std::vector<float, Allocator<float>> x(count + 64, static_cast<float>(c.rank() + round));
      float* p = x.data() + (c.rank() == 0 ? 3 : 17);  // another offset on each rank
      c.all_reduce(p, p, count, DataType::float32);
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(p[i], static_cast<float>(1 + 2 * round));
    }
  });
}

}  // namespace
}  // namespace tutti
