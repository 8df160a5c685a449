// The interface of libnccl.so.2 as threads of one process see it: groups of several communicators,
// nonblocking ones, aborts, and every argument that must be refused. rank.c tests what the
// collectives compute.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "bindings/nccl/nccl_device.h"
#include "tests/nccl/ranks.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::string last_error() { return ncclGetLastError(nullptr); }

ncclResult_t sum_in_place(std::int32_t& x, ncclComm_t comm) {
  return ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, nullptr);
}

// --- One thread, several communicators ----------------------------------------------------------

TEST(Group, OneThreadDrivesAllRanks) {
  for (const int n : {1, 2, 5}) {
    std::vector<ncclComm_t> comms(static_cast<std::size_t>(n));
    expect_success(ncclCommInitAll(comms.data(), n, nullptr));
    for (const std::size_t count : {std::size_t{1}, std::size_t{1000}, std::size_t{100'000}}) {
      std::vector<std::vector<std::int64_t>> x(comms.size());
      expect_success(ncclGroupStart());
      for (std::size_t r = 0; r < x.size(); ++r) {
        x[r].resize(count);
        std::iota(x[r].begin(), x[r].end(), static_cast<std::int64_t>(r) * 1'000'000);
        expect_success(
            ncclAllReduce(x[r].data(), x[r].data(), count, ncclInt64, ncclSum, comms[r], nullptr));
      }
      expect_success(ncclGroupEnd());
      for (std::size_t r = 0; r < x.size(); ++r) {
        for (std::size_t i = 0; i < count; ++i) {
          ASSERT_EQ(x[r][i], n * (n - 1) / 2 * 1'000'000 + n * static_cast<std::int64_t>(i));
        }
      }
    }
    expect_success(ncclGroupStart());
    for (auto* comm : comms) expect_success(ncclCommDestroy(comm));
    expect_success(ncclGroupEnd());
  }
}

TEST(Group, OneThreadMakesAllRanksAndSplitsThem) {
  constexpr int kRanks = 4;
  ncclUniqueId id;
  expect_success(ncclGetUniqueId(&id));
  std::array<ncclComm_t, kRanks> comms{}, halves{};
  expect_success(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r) {
    expect_success(ncclCommInitRank(&comms.at(r), kRanks, id, r));
  }
  expect_success(ncclGroupEnd());
  expect_success(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r) {
    expect_success(ncclCommSplit(comms.at(r), r / 2, r, &halves.at(r), nullptr));
  }
  expect_success(ncclGroupEnd());
  // Both communicators of every rank in one group, in another order on each rank, and messages.
  std::array<std::int32_t, kRanks> whole{1, 2, 3, 4}, half{1, 2, 3, 4}, from{};
  expect_success(ncclGroupStart());
  for (int r = 0; r < kRanks; ++r) {
    expect_success(ncclSend(&half.at(r), 0, ncclInt32, (r + 1) % kRanks, comms.at(r), nullptr));
    if (r % 2 == 0) expect_success(sum_in_place(whole.at(r), comms.at(r)));
    expect_success(sum_in_place(half.at(r), halves.at(r)));
    if (r % 2 == 1) expect_success(sum_in_place(whole.at(r), comms.at(r)));
    expect_success(ncclRecv(&from.at(r), 0, ncclInt32, (r + 3) % kRanks, comms.at(r), nullptr));
  }
  expect_success(ncclGroupEnd());
  EXPECT_EQ(whole, (std::array<std::int32_t, kRanks>{10, 10, 10, 10}));
  EXPECT_EQ(half, (std::array<std::int32_t, kRanks>{3, 3, 7, 7}));
  for (auto* comm : halves) expect_success(ncclCommDestroy(comm));
  for (auto* comm : comms) expect_success(ncclCommDestroy(comm));
}

TEST(Group, ARefusedCallSpoilsTheGroup) {
  std::array<ncclComm_t, 2> comms{};
  expect_success(ncclCommInitAll(comms.data(), 2, nullptr));
  std::int32_t x = 5;
  expect_success(ncclGroupStart());
  expect_success(sum_in_place(x, comms[0]));
  EXPECT_EQ(ncclReduce(&x, &x, 1, ncclInt32, ncclSum, 7, comms[1], nullptr), ncclInvalidArgument);
  EXPECT_NE(last_error().find("root 7"), std::string::npos) << last_error();
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
  EXPECT_EQ(x, 5) << "nothing of the group ran";
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  // What would wait for ever is refused.
  EXPECT_EQ(ncclSend(&x, 1, ncclInt32, 0, comms[0], nullptr), ncclInvalidUsage);
  for (auto* comm : comms) expect_success(ncclCommDestroy(comm));
}

TEST(Group, SimulationRunsNothing) {
  ncclComm_t comm = nullptr;
  expect_success(ncclCommInitAll(&comm, 1, nullptr));
  std::int32_t x = 5, y = 0;
  ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;
  expect_success(ncclGroupStart());
  expect_success(ncclAllReduce(&x, &y, 1, ncclInt32, ncclSum, comm, nullptr));
  expect_success(ncclGroupSimulateEnd(&info));
  EXPECT_EQ(y, 0);
  EXPECT_EQ(info.estimatedTime, NCCL_UNDEF_FLOAT);
  EXPECT_EQ(ncclGroupEnd(), ncclInvalidUsage);
  info.magic = 1;
  expect_success(ncclGroupStart());
  EXPECT_EQ(ncclGroupSimulateEnd(&info), ncclInvalidArgument);
  expect_success(ncclCommDestroy(comm));
}

// --- Nonblocking --------------------------------------------------------------------------------

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
  run_ranks(
      2,
      [](int rank, ncclComm_t& comm) {
        if (rank == 1) {  // whom rank 0 waits for in vain
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

// --- Abort, revoke, shrink ----------------------------------------------------------------------

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

// --- Arguments ----------------------------------------------------------------------------------

TEST(Arguments, WhatMakesNoSenseIsRefusedWithASentence) {
  ncclUniqueId id;
  expect_success(ncclGetUniqueId(&id));
  ncclComm_t comm = nullptr;
  EXPECT_EQ(ncclGetUniqueId(nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGetVersion(nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(nullptr, 1, id, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 0, id, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRank(&comm, 2, id, 2), ncclInvalidArgument);
  EXPECT_NE(last_error().find("rank 2 of 2"), std::string::npos) << last_error();
  EXPECT_EQ(ncclCommInitRankScalable(&comm, 1, 0, 2, &id, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitRankScalable(&comm, 1, 0, 1, nullptr, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitAll(&comm, -1, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommInitAll(nullptr, 1, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclGroupSimulateEnd(nullptr), ncclInvalidUsage);
  expect_success(ncclCommDestroy(nullptr));
  expect_success(ncclCommAbort(nullptr));
  ncclResult_t state{};
  EXPECT_EQ(ncclCommFinalize(nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommGetAsyncError(nullptr, &state), ncclInvalidArgument);
  int number = 0;
  EXPECT_EQ(ncclCommCount(nullptr, &number), ncclInvalidArgument);

  const int devices[] = {3, 3};  // several ranks on one device are welcome
  std::array<ncclComm_t, 2> both{};
  expect_success(ncclCommInitAll(both.data(), 2, devices));
  expect_success(ncclCommCuDevice(both[1], &number));
  EXPECT_EQ(number, 3);
  for (auto* c : both) expect_success(ncclCommDestroy(c));

  expect_success(ncclCommInitRankScalable(&comm, 1, 0, 1, &id, nullptr));
  EXPECT_EQ(ncclCommCount(comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommGetAsyncError(comm, nullptr), ncclInvalidArgument);
  float x = 1;
  const auto reduce = [&](void* to, std::size_t count, int type, int op, ncclComm_t c) {
    return ncclAllReduce(&x, to, count, static_cast<ncclDataType_t>(type),
                         static_cast<ncclRedOp_t>(op), c, nullptr);
  };
  expect_success(reduce(&x, 1, ncclFloat32, ncclSum, comm));
  EXPECT_EQ(reduce(&x, 1, 12, ncclSum, comm), ncclInvalidArgument);
  EXPECT_EQ(reduce(&x, 1, -1, ncclSum, comm), ncclInvalidArgument);
  EXPECT_EQ(reduce(&x, 1, 300, ncclSum, comm), ncclInvalidArgument);
  EXPECT_EQ(reduce(&x, 1, ncclFloat32, 5, comm), ncclInvalidArgument);
  EXPECT_EQ(reduce(&x, 1, ncclFloat32, -1, comm), ncclInvalidArgument);
  EXPECT_EQ(reduce(&x, 1, ncclFloat32, ncclMaxRedOp, comm), ncclInvalidArgument);
  EXPECT_EQ(reduce(&x, 1, ncclFloat32, ncclSum, nullptr), ncclInvalidArgument);
  EXPECT_EQ(reduce(nullptr, 1, ncclFloat32, ncclSum, comm), ncclInvalidArgument);
  EXPECT_EQ(reduce(&x, SIZE_MAX / 2, ncclFloat32, ncclSum, comm), ncclInvalidArgument);
  EXPECT_EQ(ncclBroadcast(&x, &x, 1, ncclFloat32, -1, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclSend(&x, 1, ncclFloat32, 1, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclRecv(&x, 1, ncclFloat32, -1, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclAlltoAll(&x, &x, SIZE_MAX / 2, ncclFloat32, comm, nullptr), ncclInvalidArgument);
  ncclRedOp_t op{};
  EXPECT_EQ(ncclRedOpCreatePreMulSum(&op, nullptr, ncclFloat32, ncclScalarHostImmediate, comm),
            ncclInvalidArgument);
  EXPECT_EQ(ncclRedOpDestroy(ncclSum, comm), ncclInvalidArgument);
  EXPECT_EQ(ncclRedOpDestroy(static_cast<ncclRedOp_t>(77777), comm), ncclInvalidArgument);
  expect_success(ncclRedOpCreatePreMulSum(&op, &x, ncclFloat32, ncclScalarHostImmediate, comm));
  std::int32_t i = 0;
  EXPECT_EQ(ncclAllReduce(&i, &i, 1, ncclInt32, op, comm, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommRevoke(comm, 1), ncclInvalidArgument);
  ncclComm_t other = comm;
  EXPECT_EQ(ncclCommSplit(comm, -2, 0, &other, nullptr), ncclInvalidArgument);
  EXPECT_EQ(ncclCommSplit(comm, 0, 0, nullptr, nullptr), ncclInvalidArgument);
  int nobody = 4;
  EXPECT_EQ(ncclCommShrink(comm, &nobody, 1, &other, nullptr, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommShrink(comm, &nobody, 0, &other, nullptr, 0), ncclInvalidArgument);
  EXPECT_EQ(ncclCommShrink(comm, &nobody, 1, &other, nullptr, 2), ncclInvalidArgument);
  expect_success(ncclCommFinalize(comm));
  EXPECT_EQ(ncclCommFinalize(comm), ncclInvalidArgument);
  EXPECT_EQ(reduce(&x, 1, ncclFloat32, ncclSum, comm), ncclInvalidUsage);
  expect_success(ncclCommDestroy(comm));
  EXPECT_EQ(ncclCommDestroy(comm), ncclInvalidArgument);
  EXPECT_EQ(reduce(&x, 1, ncclFloat32, ncclSum, comm), ncclInvalidArgument);
  EXPECT_STREQ(ncclGetErrorString(static_cast<ncclResult_t>(99)), "unknown result code");
}

TEST(Arguments, DifferentCallsOnTheRanksAreAMismatch) {
  run_ranks(2, [](int rank, ncclComm_t& comm) {
    std::array<float, 8> x{};
    EXPECT_EQ(
        ncclAllReduce(x.data(), x.data(), rank == 0 ? 8 : 7, ncclFloat32, ncclSum, comm, nullptr),
        ncclInvalidUsage);
    EXPECT_NE(last_error().find("x 7"), std::string::npos) << last_error();
  });
}

TEST(Arguments, AConfigIsReadAsFarAsItsVersionGoes) {
  ncclUniqueId id;
  const auto init = [&](const ncclConfig_t& config) {
    ncclConfig_t copy = config;
    ncclComm_t comm = nullptr;
    expect_success(ncclGetUniqueId(&id));
    const ncclResult_t result = ncclCommInitRankConfig(&comm, 1, id, 0, &copy);
    if (result == ncclInProgress) settled(comm);
    ncclCommDestroy(comm);
    return result;
  };
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(init(config), ncclSuccess);
  config.magic = 0;
  EXPECT_EQ(init(config), ncclInvalidArgument);
  config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 2;
  EXPECT_EQ(init(config), ncclInvalidArgument);
  config = NCCL_CONFIG_INITIALIZER;
  config.minCTAs = 8;
  config.maxCTAs = 4;
  EXPECT_EQ(init(config), ncclInvalidArgument);
  // NCCL 2.14's struct had 24 bytes, the last four of them padding.
  config = NCCL_CONFIG_INITIALIZER;
  config.size = 24;
  config.version = 21400;
  config.blocking = 0;
  config.cgaClusterSize = 12345;
  config.commName = reinterpret_cast<const char*>(8);
  EXPECT_EQ(init(config), ncclInProgress);
  config.size = 4096;  // of a later NCCL
  config.version = 23500;
  config.cgaClusterSize = 4;
  config.commName = "later";
  EXPECT_EQ(init(config), ncclInProgress);
  setenv("NCCL_COMM_BLOCKING", "1", 1);
  EXPECT_EQ(init(config), ncclSuccess);
  unsetenv("NCCL_COMM_BLOCKING");
}

// --- Memory, devices, the log -------------------------------------------------------------------

TEST(Memory, IsAllocatedAndRegistered) {
  void* memory = nullptr;
  EXPECT_EQ(ncclMemAlloc(nullptr, 8), ncclInvalidArgument);
  EXPECT_EQ(ncclMemAlloc(&memory, SIZE_MAX), ncclSystemError);
  expect_success(ncclMemAlloc(&memory, 0));
  expect_success(ncclMemFree(memory));
  expect_success(ncclMemAlloc(&memory, 10'000));
  std::memset(memory, 1, 10'000);
  ncclComm_t comm = nullptr;
  expect_success(ncclCommInitAll(&comm, 1, nullptr));
  void* handle = nullptr;
  expect_success(ncclCommRegister(comm, memory, 10'000, &handle));
  EXPECT_NE(handle, nullptr);
  expect_success(ncclCommDeregister(comm, handle));
  EXPECT_EQ(ncclCommDeregister(comm, handle), ncclInvalidUsage);
  EXPECT_EQ(ncclCommRegister(comm, nullptr, 8, &handle), ncclInvalidArgument);
  ncclWindow_t window = nullptr;
  expect_success(ncclCommWindowRegister(comm, memory, 10'000, &window, NCCL_WIN_COLL_SYMMETRIC));
  EXPECT_NE(window, nullptr);
  expect_success(ncclCommWindowDeregister(comm, window));
  EXPECT_EQ(ncclCommWindowDeregister(comm, window), ncclInvalidUsage);
  EXPECT_EQ(ncclCommWindowRegister(comm, memory, 8, &window, 64), ncclInvalidArgument);
  expect_success(ncclCommDestroy(comm));
  expect_success(ncclMemFree(memory));
  EXPECT_EQ(ncclMemFree(memory), ncclInvalidArgument);
  int on_stack = 0;
  EXPECT_EQ(ncclMemFree(&on_stack), ncclInvalidArgument);
  expect_success(ncclMemFree(nullptr));
}

TEST(Device, FunctionsAnswerOrRefuse) {
  run_ranks(2, [](int rank, ncclComm_t& comm) {
    const ncclTeam_t world = ncclTeamWorld(comm);
    EXPECT_EQ(world.nRanks, 2);
    EXPECT_EQ(world.rank, rank);
    EXPECT_EQ(ncclTeamRankToWorld(comm, world, 1), 1);
    EXPECT_EQ(ncclTeamRankToWorld(comm, ncclTeamLsa(comm), 0), rank);
    EXPECT_EQ(ncclTeamRankToLsa(comm, world, rank), 0);
    EXPECT_EQ(ncclTeamRail(comm).nRanks, 2);
    EXPECT_EQ(ncclDevCommCreate(comm, nullptr, nullptr), ncclInvalidUsage);
    EXPECT_EQ(ncclLLA2ACalcSlots(3, 9), 6);
  });
  EXPECT_NE(last_error().find("CUDA kernels"), std::string::npos) << last_error();
  EXPECT_EQ(ncclTeamWorld(nullptr).nRanks, 0);
  EXPECT_EQ(ncclTeamRankToWorld(nullptr, {1, 0, 1}, 0), -1);
}

TEST(Log, GoesWhereTheVariablesSay) {
  const auto folder = std::filesystem::temp_directory_path();
  const std::string pattern = (folder / "tutti-nccl-log-%p.txt").string();
  const auto file = folder / ("tutti-nccl-log-" + std::to_string(getpid()) + ".txt");
  setenv("NCCL_DEBUG", "info", 1);
  setenv("NCCL_DEBUG_FILE", pattern.c_str(), 1);
  setenv("NCCL_PROTO", "LL", 1);
  setenv("NCCL_ALGO", "NVLS,Ring", 1);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  ncclResetDebugInit();
  ncclComm_t comm = nullptr;
  ncclUniqueId id;
  expect_success(ncclGetUniqueId(&id));
  expect_success(ncclCommInitRank(&comm, 1, id, 0));
  EXPECT_EQ(ncclCommFinalize(nullptr), ncclInvalidArgument);
  for (const char* name : {"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_PROTO", "NCCL_ALGO"}) {
    unsetenv(name);
  }
  ncclResetDebugInit();
#pragma GCC diagnostic pop
  EXPECT_EQ(ncclCommFinalize(nullptr), ncclInvalidArgument);
  expect_success(ncclCommDestroy(comm));
  std::ifstream stream(file);
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  std::filesystem::remove(file);
  EXPECT_NE(text.find("NCCL version 2.28.9"), std::string::npos) << text;
  EXPECT_NE(text.find("NCCL_PROTO=LL has no meaning"), std::string::npos) << text;
  EXPECT_NE(text.find("Init COMPLETE"), std::string::npos) << text;
  const std::size_t warning = text.find("NCCL WARN ncclCommFinalize: the argument comm is NULL");
  EXPECT_NE(warning, std::string::npos) << text;
  EXPECT_EQ(text.find("NCCL WARN", warning + 1), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::test
