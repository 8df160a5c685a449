// Nonblocking communicators: what is in progress, what may be called meanwhile, and how it ends.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "bindings/nccl/nccl.h"
#include "tests/bindings/nccl/ranks.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

TEST(Nonblocking, EverythingReportsProgressAndThenSuccess) {
  run_ranks(
      3,
      [](int rank, ncclComm_t& comm) {
        std::vector<std::int32_t> x(50'000, rank + 1);
        EXPECT_EQ(ncclAllReduce(x.data(), x.data(), x.size(), ncclInt32, ncclSum, comm, nullptr),
                  ncclInProgress);
        EXPECT_EQ(settled(comm), ncclSuccess);
        EXPECT_EQ(x, std::vector<std::int32_t>(x.size(), 6));

        std::int32_t mine = rank, theirs = -1;
        expect_success(ncclGroupStart());
        expect_success(ncclSend(&mine, 1, ncclInt32, (rank + 1) % 3, comm, nullptr));
        expect_success(ncclRecv(&theirs, 1, ncclInt32, (rank + 2) % 3, comm, nullptr));
        EXPECT_EQ(ncclGroupEnd(), ncclInProgress);
        EXPECT_EQ(settled(comm), ncclSuccess);
        EXPECT_EQ(theirs, (rank + 2) % 3);

        // The child is there at once, as callers wait for the pointer; it inherits the mode.
        ncclComm_t child = nullptr;
        EXPECT_EQ(ncclCommSplit(comm, rank == 2 ? NCCL_SPLIT_NOCOLOR : 0, 0, &child, nullptr),
                  ncclInProgress);
        EXPECT_EQ(child == nullptr, rank == 2);
        EXPECT_EQ(settled(comm), ncclSuccess);
        if (child != nullptr) {
          EXPECT_EQ(settled(child), ncclSuccess);
          mine = 1;
          EXPECT_EQ(sum_in_place(mine, child), ncclInProgress);
          EXPECT_EQ(settled(child), ncclSuccess);
          EXPECT_EQ(mine, 2);
          expect_success(ncclCommFinalize(child));
          expect_success(ncclCommDestroy(child));
        }
      },
      nonblocking());
}

TEST(Nonblocking, ABusyCommunicatorTakesNoCallsButCanBeAborted) {
  std::latch settled(2);  // rank 1 has seen its communicator in order before it is aborted
  run_ranks(
      2,
      [&](int rank, ncclComm_t& comm) {
        settled.arrive_and_wait();
        if (rank == 1) {  // rank 0 waits for it in vain
          std::this_thread::sleep_for(100ms);
        } else {
          std::int32_t x = 0;
          EXPECT_EQ(sum_in_place(x, comm), ncclInProgress);
          EXPECT_EQ(sum_in_place(x, comm), ncclInvalidArgument);
          EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
          const auto begin = Clock::now();
          expect_success(ncclCommAbort(comm));
          EXPECT_LT(Clock::now() - begin, 1s);
          comm = nullptr;
        }
      },
      nonblocking());
}

TEST(Nonblocking, AnInitialisationThatNobodyJoinsCanBeAborted) {
  setenv("TUTTI_RENDEZVOUS_TIMEOUT", "1", 1);
  ncclUniqueId id;
  expect_success(ncclGetUniqueId(&id));
  ncclConfig_t config = nonblocking();
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclCommInitRankConfig(&comm, 2, id, 0, &config), ncclInProgress);
  ncclResult_t state = ncclSuccess;
  expect_success(ncclCommGetAsyncError(comm, &state));
  EXPECT_EQ(state, ncclInProgress);
  int count = 0;
  EXPECT_EQ(ncclCommCount(comm, &count), ncclInvalidArgument);
  const auto begin = Clock::now();
  expect_success(ncclCommAbort(comm));
  EXPECT_LT(Clock::now() - begin, 500ms);

  // Blocking: it fails when the time is over, and leaves no communicator.
  EXPECT_EQ(ncclGetUniqueId(&id), ncclSuccess);
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 0), ncclRemoteError);
  EXPECT_EQ(comm, nullptr);
  EXPECT_NE(last_error().find("rank 1"), std::string::npos) << last_error();
  unsetenv("TUTTI_RENDEZVOUS_TIMEOUT");
}

TEST(Nonblocking, IsNotMixedWithBlockingInOneGroup) {
  std::array<ncclComm_t, 1> blocking{};
  expect_success(ncclCommInitAll(blocking.data(), 1, nullptr));
  run_ranks(
      1,
      [&](int, ncclComm_t& comm) {
        std::int32_t x = 0, y = 0;
        expect_success(ncclGroupStart());
        expect_success(sum_in_place(x, comm));
        EXPECT_EQ(sum_in_place(y, blocking[0]), ncclInvalidArgument);
        EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
      },
      nonblocking());
  expect_success(ncclCommDestroy(blocking[0]));
}

}  // namespace
}  // namespace tutti::test
