// ncclCommSuspend, ncclCommResume, ncclCommMemStats.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <vector>

#include "bindings/nccl/nccl.h"
#include "tests/bindings/nccl/ranks.h"
#include "tests/support/contains.h"

namespace tutti::test {
namespace {

constexpr std::size_t kCount = 100'000;

std::uint64_t stat(ncclComm_t comm, ncclCommMemStat_t which) {
  std::uint64_t value = ~std::uint64_t{0};
  expect_success(ncclCommMemStats(comm, which, &value));
  return value;
}

/// From rank to rank, through the memory of links, as messages are that are too short to be pulled.
void pass_round(int rank, int ranks, ncclComm_t comm, bool blocks = true) {
  std::vector<std::int32_t> mine(kCount, 100 + rank), theirs(kCount, -1);
  const int from = (rank + 1) % ranks;
  expect_success(ncclGroupStart());
  constexpr std::size_t kPart = 3000;
  for (std::size_t at = 0; at < kCount; at += kPart) {
    const std::size_t n = std::min<std::size_t>(kPart, kCount - at);
    const int to = (rank + ranks - 1) % ranks;
    expect_success(ncclSend(mine.data() + at, n, ncclInt32, to, comm, nullptr));
    expect_success(ncclRecv(theirs.data() + at, n, ncclInt32, from, comm, nullptr));
  }
  const ncclResult_t result = ncclGroupEnd();
  if (blocks) {
    expect_success(result);
  } else {
    EXPECT_EQ(result, ncclInProgress);
    EXPECT_EQ(settled(comm), ncclSuccess);
  }
  EXPECT_EQ(theirs, std::vector<std::int32_t>(kCount, 100 + from));
}

TEST(Suspend, MemoryGoesAndComesBack) {
  constexpr int kRanks = 3;
  std::barrier meeting(kRanks);  // while a statistic is asked for, nobody is in a call
  run_ranks(kRanks, [&](int rank, ncclComm_t& comm) {
    for (int round = 0; round < 3; ++round) {
      pass_round(rank, kRanks, comm);
      meeting.arrive_and_wait();
      const std::uint64_t used = stat(comm, ncclStatGpuMemSuspend);
      const std::uint64_t kept = stat(comm, ncclStatGpuMemPersist);
      EXPECT_GT(used, 100'000U);
      EXPECT_GT(kept, 0U);
      EXPECT_EQ(stat(comm, ncclStatGpuMemTotal), used + kept);
      EXPECT_EQ(stat(comm, ncclStatGpuMemSuspended), 0U);
      meeting.arrive_and_wait();
      expect_success(ncclCommSuspend(comm, NCCL_SUSPEND_MEM));
      meeting.arrive_and_wait();
      EXPECT_EQ(stat(comm, ncclStatGpuMemSuspend), 0U);
      EXPECT_EQ(stat(comm, ncclStatGpuMemSuspended), 1U);
      meeting.arrive_and_wait();
      expect_success(ncclCommSuspend(comm, NCCL_SUSPEND_MEM));  // it is
      std::int32_t x = 1;
      EXPECT_EQ(sum_in_place(x, comm), ncclInvalidUsage);
      EXPECT_CONTAINS(last_error(), "the communicator is suspended: call ncclCommResume first");
      ncclComm_t child = comm;
      EXPECT_EQ(ncclCommSplit(comm, 0, 0, &child, nullptr), ncclInvalidUsage);
      expect_success(ncclCommResume(comm));
      EXPECT_EQ(stat(comm, ncclStatGpuMemSuspended), 0U);
    }
    pass_round(rank, kRanks, comm);
  });
}

TEST(Suspend, AGroupSuspendsSeveral) {
  run_ranks(2, [](int rank, ncclComm_t& comm) {
    ncclComm_t second = nullptr;
    expect_success(ncclCommSplit(comm, 0, rank, &second, nullptr));
    expect_success(ncclGroupStart());
    // In another order on each rank.
    expect_success(ncclCommSuspend(rank == 0 ? comm : second, NCCL_SUSPEND_MEM));
    expect_success(ncclCommSuspend(rank == 0 ? second : comm, NCCL_SUSPEND_MEM));
    expect_success(ncclGroupEnd());
    for (ncclComm_t c : {comm, second}) {
      EXPECT_EQ(stat(c, ncclStatGpuMemSuspended), 1U);
      expect_success(ncclCommResume(c));
      pass_round(rank, 2, c);
    }
    expect_success(ncclCommDestroy(second));
  });
}

TEST(Suspend, NonblockingCommunicatorsSuspendInTheBackground) {
  run_ranks(
      2,
      [](int rank, ncclComm_t& comm) {
        std::int32_t x = 1;
        if (rank == 0) {  // before the other rank comes, it is under way
          EXPECT_EQ(sum_in_place(x, comm), ncclInProgress);
          EXPECT_EQ(ncclCommSuspend(comm, NCCL_SUSPEND_MEM), ncclInvalidArgument);
          EXPECT_CONTAINS(last_error(), "still busy with an earlier call");
        } else {
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          EXPECT_EQ(sum_in_place(x, comm), ncclInProgress);
        }
        EXPECT_EQ(settled(comm), ncclSuccess);
        EXPECT_EQ(ncclCommSuspend(comm, NCCL_SUSPEND_MEM), ncclInProgress);
        EXPECT_EQ(settled(comm), ncclSuccess);
        EXPECT_EQ(stat(comm, ncclStatGpuMemSuspended), 1U);
        expect_success(ncclCommResume(comm));
        pass_round(rank, 2, comm, false);
      },
      nonblocking());
}

TEST(Suspend, WrongArgumentsAreRefused) {
  run_ranks(1, [](int, ncclComm_t& comm) {
    std::uint64_t value = 7;
    EXPECT_EQ(ncclCommSuspend(nullptr, NCCL_SUSPEND_MEM), ncclInvalidArgument);
    EXPECT_EQ(ncclCommSuspend(comm, 64), ncclInvalidArgument);
    EXPECT_EQ(ncclCommResume(nullptr), ncclInvalidArgument);
    expect_success(ncclCommSuspend(comm, 0));
    EXPECT_EQ(stat(comm, ncclStatGpuMemSuspended), 0U);
    EXPECT_EQ(ncclCommMemStats(comm, static_cast<ncclCommMemStat_t>(4), &value),
              ncclInvalidArgument);
    EXPECT_EQ(ncclCommMemStats(comm, ncclStatGpuMemTotal, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclCommMemStats(nullptr, ncclStatGpuMemTotal, &value), ncclInvalidArgument);
    EXPECT_EQ(value, 7U);
    expect_success(ncclCommFinalize(comm));
    EXPECT_EQ(ncclCommSuspend(comm, NCCL_SUSPEND_MEM), ncclInvalidUsage);
  });
}

}  // namespace
}  // namespace tutti::test
