// What a communicator holds of memory, and gives back while it is idle: ranks of a process, ranks
// that treat each other as processes, and ranks of different hosts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <barrier>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/comm/call_value.h"
#include "tests/support/clean_environment.h"
#include "tests/support/contains.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using test::call_value;
using test::error_of;

constexpr int kMembers = 3;
constexpr std::size_t kManyNumbers = 200'000;

struct Where {
  const char* name;
  Variables settings;
  int ranks_per_host;
};

class MemoryUseOf : public testing::TestWithParam<Where> {
 protected:
  void run(const std::function<void(Communicator&)>& body) {
    std::vector<Options> options(kMembers);
    for (std::size_t r = 0; r < options.size(); ++r) {
      const int host = static_cast<int>(r) / GetParam().ranks_per_host;
      options[r].host_id = fmt::format("host{}", host);
    }
    std::vector<Communicator> comms = Communicator::create_local(options);
    std::vector<std::jthread> threads;
    for (Communicator& comm : comms) {
      threads.emplace_back([&] { EXPECT_NO_THROW(body(comm)); });
    }
  }

  /// The rank's memory, while no rank is in a call.
  MemoryUse memory_of(Communicator& comm) {
    meeting_.arrive_and_wait();
    const MemoryUse use = comm.memory();
    meeting_.arrive_and_wait();
    return use;
  }

  Environment environment_{GetParam().settings};
  std::barrier<> meeting_{kMembers};
};

void expect_right_sums(Communicator& comm, int call, std::size_t count = kManyNumbers) {
  std::vector<std::int32_t> in(count), out(count);
  for (std::size_t i = 0; i < count; ++i) in[i] = call_value(comm.rank(), i, call);
  comm.all_reduce(in.data(), out.data(), count, DataType::int32);
  for (std::size_t i = 0; i < count; ++i) {
    std::int32_t sum = 0;
    for (int r = 0; r < comm.size(); ++r) sum += call_value(r, i, call);
    ASSERT_EQ(out[i], sum) << "element " << i << " of call " << call;
  }
}

void pass_round(Communicator& comm, int call) {
  std::vector<std::int32_t> mine(kManyNumbers), theirs(kManyNumbers);
  for (std::size_t i = 0; i < kManyNumbers; ++i) mine[i] = call_value(comm.rank(), i, call);
  const int from = (comm.rank() + 1) % comm.size();
  group([&] {
    comm.send(mine.data(), kManyNumbers, DataType::int32,
              (comm.rank() + comm.size() - 1) % comm.size());
    comm.recv(theirs.data(), kManyNumbers, DataType::int32, from);
  });
  for (std::size_t i = 0; i < kManyNumbers; ++i) {
    ASSERT_EQ(theirs[i], call_value(from, i, call)) << "element " << i << " of call " << call;
  }
}

TEST_P(MemoryUseOf, IsGivenBackAndTakenAgain) {
  run([&](Communicator& comm) {
    const MemoryUse fresh = memory_of(comm);
    EXPECT_EQ(fresh.links + fresh.staging, 0U);
    EXPECT_GT(fresh.control, 0U);
    for (int call = 0; call < 3; ++call) {
      expect_right_sums(comm, 2 * call);
      pass_round(comm, 2 * call + 1);
      const MemoryUse used = memory_of(comm);
      EXPECT_GT(used.links, 100'000U);
      comm.release_memory();
      const MemoryUse left = memory_of(comm);
      // What has not left this process for another host stays.
      EXPECT_LE(left.links, GetParam().ranks_per_host == kMembers ? 0 : used.links / 2);
      EXPECT_EQ(left.staging, 0U);
      EXPECT_LE(left.control, fresh.control + 100'000);
      comm.release_memory();  // twice is as good as once
      EXPECT_LE(memory_of(comm).links, left.links);
    }
    for (int i = 0; i < 200; ++i) expect_right_sums(comm, i, 1 + static_cast<std::size_t>(i) * 37);
  });
}

TEST_P(MemoryUseOf, MessagesOnTheirWayStay) {
  run([](Communicator& comm) {
    std::vector<std::int32_t> data(4'000);  // that fit the rings
    const int to = (comm.rank() + 1) % comm.size(), from = (comm.rank() + 2) % comm.size();
    // Ranks that send to each other exchange memory of their links.
    for (int n = 0; n < 40; ++n) {
      std::vector<std::int32_t> got(data.size());
      for (const int peer : {to, from}) {
        group([&] {
          comm.send(data.data(), data.size(), DataType::int32, peer);
          comm.recv(got.data(), got.size(), DataType::int32, peer == to ? from : to);
        });
      }
    }
    for (std::size_t i = 0; i < data.size(); ++i) data[i] = call_value(comm.rank(), i, 0);
    for (int n = 0; n < 3; ++n) comm.send(data.data(), data.size(), DataType::int32, to);
    comm.release_memory();
    for (int n = 0; n < 3; ++n) {
      std::vector<std::int32_t> got(data.size());
      comm.recv(got.data(), got.size(), DataType::int32, from);
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], call_value(from, i, 0)) << i;
    }
  });
}

TEST_P(MemoryUseOf, IsKeptWhileARankHasStartedCalls) {
  run([](Communicator& comm) {
    std::int32_t x = 0;
    Future recv;
    if (comm.rank() == 1) {
      recv = comm.start({.collective = Collective::send_recv,
                         .out = &x,
                         .count = 1,
                         .type = DataType::int32,
                         .peer = 0});
    }
    const Error error = error_of([&] { comm.release_memory(); });
    EXPECT_EQ(error.code(), ErrorCode::invalid_usage);
    EXPECT_CONTAINS(error, "rank 1 has started calls that are not over");
    const std::int32_t sent = 17;
    if (comm.rank() == 0) comm.send(&sent, 1, DataType::int32, 1);
    if (comm.rank() == 1) {
      recv.wait();
      EXPECT_EQ(x, 17);
    }
    comm.release_memory();
    expect_right_sums(comm, 5);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, MemoryUseOf,
                         testing::Values(Where{"OfAProcess", {{"TUTTI_WINDOWS", "0"}}, kMembers},
                                         Where{"OfProcesses", {{"TUTTI_APART", "1"}}, kMembers},
                                         Where{"OfProcessesWithCopies",
                                               {{"TUTTI_APART", "1"}, {"TUTTI_CMA", "1"}},
                                               kMembers},
                                         Where{"OfThreeHosts", {{"TUTTI_TRANSPORT", "tcp"}}, 1},
                                         Where{"OfTwoHosts", {{"TUTTI_TRANSPORT", "tcp"}}, 2}),
                         [](const auto& p) { return std::string(p.param.name); });

TEST(MemoryUse, StagingIsCountedAndFreed) {
  // Copies by the kernel go through memory of the rank.
  const Environment environment(
      {{"TUTTI_APART", "1"}, {"TUTTI_CMA", "1"}, {"TUTTI_ALGORITHM", "two_shot_window"}});
  test::run_thread_ranks(3, [](Communicator& comm) {
    for (int call = 0; call < 3; ++call) {
      expect_right_sums(comm, call);
      EXPECT_GT(comm.memory().staging, 0U);
      comm.release_memory();
      EXPECT_EQ(comm.memory().staging, 0U);
    }
  });
}

TEST(MemoryUse, TmpOfARankOfThisProcessIsReadWhereItIsNow) {
  // It may come to lie where it was before, in other memory.
  const Environment environment(Variables{{"TUTTI_ALGORITHM", "shared"}});
  test::run_thread_ranks(4, [](Communicator& comm) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    for (int call = 0; call < 24; ++call) {
      const int root = call % comm.size();
      const std::size_t count = call < 12 ? std::size_t{100} << call : 30'000;
      std::vector<std::int32_t> in(count), sent(count), all(ranks * count);
      for (std::size_t i = 0; i < count; ++i) in[i] = call_value(comm.rank(), i, call);
      comm.broadcast(in.data(), sent.data(), count, DataType::int32, root);
      comm.all_gather(in.data(), all.data(), count, DataType::int32);
      for (std::size_t i = 0; i < count; ++i) ASSERT_EQ(sent[i], call_value(root, i, call));
      for (std::size_t i = 0; i < ranks * count; ++i) {
        ASSERT_EQ(all[i], call_value(static_cast<int>(i / count), i % count, call));
      }
      expect_right_sums(comm, call);
      if (call % 2 == 1) comm.release_memory();
    }
  });
}

TEST(MemoryUse, OneRankHasNothingToGiveBack) {
  test::run_thread_ranks(1, [](Communicator& comm) {
    expect_right_sums(comm, 0);
    comm.release_memory();
    EXPECT_EQ(comm.memory().links, 0U);
    expect_right_sums(comm, 1);
  });
}

TEST(MemoryUse, OtherCallsDoNotMatchIt) {
  std::vector<Communicator> comms = Communicator::create_local(2);
  std::jthread other([&] {
    const Error error = error_of([&] { comms[1].barrier(); });
    EXPECT_EQ(error.code(), ErrorCode::mismatch);
  });
  const Error error = error_of([&] { comms[0].release_memory(); });
  EXPECT_EQ(error.code(), ErrorCode::mismatch);
  EXPECT_CONTAINS(error, "release_memory #1");
}

}  // namespace
}  // namespace tutti
