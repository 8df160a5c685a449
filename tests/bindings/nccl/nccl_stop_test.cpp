// Stopping: abort from another thread, revoke, and going on with a split or shrink.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <latch>
#include <string>
#include <thread>

#include "bindings/nccl/nccl.h"
#include "tests/bindings/nccl/ranks.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST(Abort, FreesAThreadThatWaitsInACollective) {
  std::atomic<int> returned{0};
  run_ranks(3, [&](int rank, ncclComm_t& comm) {
    if (rank == 0) {  // never takes part
      while (returned < 2) std::this_thread::sleep_for(1ms);
      return;
    }
    std::jthread helper;
    const auto begin = Clock::now();
    if (rank == 1) {
      helper = std::jthread([&comm] {
        std::this_thread::sleep_for(50ms);
        expect_success(ncclCommAbort(comm));
      });
    }
    std::int32_t x = 0;
    const ncclResult_t result = sum_in_place(x, comm);
    EXPECT_EQ(result, rank == 1 ? ncclInvalidUsage : ncclRemoteError);
    EXPECT_LT(Clock::now() - begin, 1s);
    if (helper.joinable()) helper.join();
    if (rank == 1) {
      EXPECT_EQ(sum_in_place(x, comm), ncclInvalidArgument) << "a stale handle is recognised";
      comm = nullptr;
    } else {
      ncclResult_t state = ncclSuccess;
      expect_success(ncclCommGetAsyncError(comm, &state));
      EXPECT_EQ(state, ncclRemoteError);
      EXPECT_NE(std::string(ncclGetLastError(comm)).find("rank 1 aborted"), std::string::npos);
    }
    ++returned;
  });
}

TEST(Abort, OfAnIdleRankDoesNotHarmWhoIsDone) {
  run_ranks(3, [](int rank, ncclComm_t& comm) {
    for (int i = 0; i < 20; ++i) {
      std::int32_t x = rank;
      expect_success(sum_in_place(x, comm));
      EXPECT_EQ(x, 3);
    }
    expect_success(ncclCommAbort(comm));
    comm = nullptr;
  });
}

TEST(Revoke, StopsTheRanksAndTheyGoOnWithASplitOrShrink) {
  run_ranks(3, [](int rank, ncclComm_t& comm) {
    std::int32_t x = 1;
    if (rank == 0) {
      std::this_thread::sleep_for(50ms);
      expect_success(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    } else {
      EXPECT_EQ(sum_in_place(x, comm), ncclRemoteError);
      expect_success(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    }
    ncclResult_t state = ncclInProgress;
    expect_success(ncclCommGetAsyncError(comm, &state));
    EXPECT_EQ(state, ncclSuccess) << "it is at rest";
    EXPECT_EQ(sum_in_place(x, comm), ncclInvalidUsage);
    EXPECT_NE(last_error().find("communicator was revoked"), std::string::npos);
    EXPECT_EQ(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ncclInvalidUsage);
    EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidUsage);
    ncclComm_t child = nullptr;
    expect_success(ncclCommSplit(comm, 0, -rank, &child, nullptr));
    int child_rank = -1;
    expect_success(ncclCommUserRank(child, &child_rank));
    EXPECT_EQ(child_rank, 2 - rank);
    x = 1;
    expect_success(sum_in_place(x, child));
    EXPECT_EQ(x, 3);
    expect_success(ncclCommDestroy(child));
    if (rank != 1) {
      int excluded = 1;
      expect_success(ncclCommShrink(comm, &excluded, 1, &child, nullptr, NCCL_SHRINK_DEFAULT));
      x = 1;
      expect_success(sum_in_place(x, child));
      EXPECT_EQ(x, 2);
      expect_success(ncclCommDestroy(child));
    }
  });
}

TEST(Revoke, EndsWhatANonblockingCommunicatorIsAt) {
  std::latch both_are_there(2);
  run_ranks(
      2,
      [&](int rank, ncclComm_t& comm) {
        std::int32_t x = 1;
        both_are_there.arrive_and_wait();
        if (rank == 0) {
          EXPECT_EQ(sum_in_place(x, comm), ncclInProgress);
          std::this_thread::sleep_for(20ms);
        } else {
          std::this_thread::sleep_for(200ms);
        }
        const ncclResult_t result = ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT);
        EXPECT_TRUE(result == ncclSuccess || result == ncclInProgress);
        EXPECT_EQ(settled(comm), ncclSuccess);
        EXPECT_EQ(sum_in_place(x, comm), ncclInvalidUsage);
        ncclComm_t child = nullptr;
        EXPECT_EQ(ncclCommSplit(comm, 0, rank, &child, nullptr), ncclInProgress);
        EXPECT_EQ(settled(child), ncclSuccess);
        EXPECT_EQ(sum_in_place(x, child), ncclInProgress);
        EXPECT_EQ(settled(child), ncclSuccess);
        EXPECT_EQ(x, 2);
        expect_success(ncclCommDestroy(child));
      },
      nonblocking());
}

TEST(Revoke, WrongArgumentsAreRefused) {
  run_ranks(1, [](int, ncclComm_t& comm) {
    EXPECT_EQ(ncclCommRevoke(nullptr, NCCL_REVOKE_DEFAULT), ncclInvalidArgument);
    EXPECT_EQ(ncclCommRevoke(comm, 1), ncclInvalidArgument);
    std::int32_t x = 1;
    expect_success(sum_in_place(x, comm));
    expect_success(ncclCommFinalize(comm));
    EXPECT_EQ(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT), ncclInvalidUsage);
  });
}

TEST(Shrink, AbortsWhatRunsOnTheParent) {
  run_ranks(
      3,
      [](int rank, ncclComm_t& comm) {
        if (rank == 2) return;  // gone as far as the others know
        std::int32_t x = 1;
        EXPECT_EQ(sum_in_place(x, comm), ncclInProgress);
        std::this_thread::sleep_for(20ms);
        int excluded = 2;
        ncclComm_t rest = nullptr;
        EXPECT_EQ(ncclCommShrink(comm, &excluded, 1, &rest, nullptr, NCCL_SHRINK_ABORT),
                  ncclInProgress);
        EXPECT_EQ(settled(rest), ncclSuccess);
        settled(comm);
        x = 1;
        EXPECT_EQ(sum_in_place(x, rest), ncclInProgress);
        EXPECT_EQ(settled(rest), ncclSuccess);
        EXPECT_EQ(x, 2);
        expect_success(ncclCommDestroy(rest));
      },
      nonblocking());
}

}  // namespace
}  // namespace tutti::test
