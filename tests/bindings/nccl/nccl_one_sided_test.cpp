// Windows, puts and signals: what arrives, in which order, and which calls are refused.
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <latch>
#include <string>
#include <vector>

#include "bindings/nccl/nccl.h"
#include "bindings/nccl/nccl_device.h"
#include "tests/bindings/nccl/ranks.h"
#include "tests/support/contains.h"

namespace tutti::test {
namespace {

using Ints = std::vector<std::int32_t>;

ncclResult_t put(const Ints& from, int peer, ncclWindow_t window, std::size_t offset,
                 ncclComm_t comm, int signal = 0, int context = 0) {
  return ncclPutSignal(from.data(), from.size(), ncclInt32, peer, window, offset, signal, context,
                       0, comm, nullptr);
}

ncclResult_t wait_for(std::vector<ncclWaitSignalDesc_t> signals, ncclComm_t comm) {
  return ncclWaitSignal(static_cast<int>(signals.size()), signals.data(), comm, nullptr);
}

/// Made by all ranks, of `ints`.
ncclWindow_t window_of(Ints& ints, ncclComm_t comm) {
  ncclWindow_t window = nullptr;
  expect_success(
      ncclCommWindowRegister(comm, ints.data(), 4 * ints.size(), &window, NCCL_WIN_COLL_SYMMETRIC));
  EXPECT_NE(window, nullptr);
  return window;
}

TEST(OneSided, ASignalComesAfterTheDataBeforeIt) {
  run_ranks(3, [](int rank, ncclComm_t& comm) {
    Ints memory(300, -1);
    const ncclWindow_t window = window_of(memory, comm);
    const int next = (rank + 1) % 3, before = (rank + 2) % 3;
    for (int round = 0; round < 50; ++round) {
      Ints from(100);
      for (std::size_t i = 0; i < 100; ++i)
        from[i] = 1'000'000 * rank + 1000 * round + static_cast<int>(i);
      // To the place of this rank in the memory of the next.
      expect_success(put(from, next, window, 400 * static_cast<std::size_t>(rank), comm));
      expect_success(wait_for({{1, before, 0, 0}}, comm));
      for (std::size_t i = 0; i < 100; ++i) {
        ASSERT_EQ(memory[100 * static_cast<std::size_t>(before) + i],
                  1'000'000 * before + 1000 * round + static_cast<int>(i));
      }
      expect_success(ncclSignal(before, 0, 0, 0, comm, nullptr));  // it may write again
      expect_success(wait_for({{1, next, 0, 0}}, comm));
    }
    expect_success(ncclCommWindowDeregister(comm, window));
  });
}

TEST(OneSided, SignalsAreCountedByPeerIndexAndContext) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.numRmaCtx = 2;
  config.numRmaSig = 3;
  run_ranks(
      2,
      [](int rank, ncclComm_t& comm) {
        Ints memory(1);
        window_of(memory, comm);
        const int peer = 1 - rank;
        for (int n = 0; n < 3; ++n) expect_success(ncclSignal(peer, 2, 1, 0, comm, nullptr));
        expect_success(ncclSignal(peer, 1, 0, 0, comm, nullptr));
        expect_success(ncclSignal(rank, 0, 0, 0, comm, nullptr));  // to itself
        expect_success(wait_for({{2, peer, 2, 1}, {1, peer, 1, 0}, {1, rank, 0, 0}}, comm));
        expect_success(wait_for({{1, peer, 2, 1}, {0, peer, 0, 0}}, comm));
        EXPECT_EQ(ncclSignal(peer, 3, 0, 0, comm, nullptr), ncclInvalidArgument);
        EXPECT_CONTAINS(last_error(), "sigIdx is 3, but must be 0 to 2");
        EXPECT_EQ(ncclSignal(peer, 0, 2, 0, comm, nullptr), ncclInvalidArgument);
        EXPECT_CONTAINS(last_error(), "ctx is 2, but must be 0 to 1");
      },
      config);
  config.numRmaSig = 100;
  run_ranks(
      1,
      [](int, ncclComm_t& comm) {
        Ints memory(1);
        window_of(memory, comm);
        EXPECT_EQ(ncclSignal(0, 0, 1, 0, comm, nullptr), ncclInvalidUsage);
        EXPECT_CONTAINS(last_error(), "signal 0 of context 1 would be number 100");
      },
      config);
}

TEST(OneSided, GroupsHaveThemToo) {
  run_ranks(2, [](int rank, ncclComm_t& comm) {
    Ints memory(8, -1), sum = {rank + 1};
    const ncclWindow_t window = window_of(memory, comm);
    const int peer = 1 - rank;
    const Ints from = {10 + rank, 20 + rank};
    expect_success(ncclGroupStart());
    expect_success(wait_for({{2, peer, 0, 0}}, comm));  // before what it waits for
    expect_success(put(from, peer, window, 8, comm));
    expect_success(ncclAllReduce(sum.data(), sum.data(), 1, ncclInt32, ncclSum, comm, nullptr));
    expect_success(ncclSignal(peer, 0, 0, 0, comm, nullptr));
    expect_success(ncclGroupEnd());
    EXPECT_EQ(memory, (Ints{-1, -1, 10 + peer, 20 + peer, -1, -1, -1, -1}));
    EXPECT_EQ(sum[0], 3);
  });
}

TEST(OneSided, NonblockingCommunicatorsWaitInTheBackground) {
  run_ranks(
      2,
      [](int rank, ncclComm_t& comm) {
        Ints memory(1, -1);
        ncclWindow_t window = nullptr;
        EXPECT_EQ(ncclCommWindowRegister(comm, memory.data(), 4, &window, NCCL_WIN_DEFAULT),
                  ncclInProgress);
        EXPECT_EQ(settled(comm), ncclSuccess);
        ASSERT_NE(window, nullptr);
        const Ints from = {7 + rank};
        EXPECT_EQ(put(from, 1 - rank, window, 0, comm), ncclInProgress);
        EXPECT_EQ(settled(comm), ncclSuccess);
        EXPECT_EQ(wait_for({{1, 1 - rank, 0, 0}}, comm), ncclInProgress);
        EXPECT_EQ(settled(comm), ncclSuccess);
        EXPECT_EQ(memory[0], 8 - rank);
      },
      nonblocking());
}

TEST(OneSided, AWaitEndsWhenTheCommunicatorIsRevoked) {
  std::latch ended(1);
  run_ranks(2, [&](int rank, ncclComm_t& comm) {
    Ints memory(1);
    window_of(memory, comm);
    if (rank == 0) {
      EXPECT_EQ(wait_for({{1, 1, 0, 0}}, comm), ncclRemoteError);
      ended.count_down();
    } else {
      expect_success(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
      ended.wait();
    }
  });
}

TEST(OneSided, AWaitForARankThatDestroysItsCommunicatorIsARemoteError) {
  run_ranks(2, [&](int rank, ncclComm_t& comm) {
    Ints memory(1);
    window_of(memory, comm);
    if (rank == 1) return;  // it destroys
    EXPECT_EQ(wait_for({{1, 1, 0, 0}}, comm), ncclRemoteError);
    EXPECT_CONTAINS(last_error(), "rank 1, which has left the communicator");
  });
}

TEST(OneSided, WrongArgumentsAreRefused) {
  run_ranks(2, [](int rank, ncclComm_t& comm) {
    Ints memory(rank == 0 ? 10 : 20);
    const Ints from = {1, 2};
    EXPECT_EQ(ncclSignal(0, 0, 0, 0, comm, nullptr), ncclInvalidUsage);
    EXPECT_CONTAINS(last_error(), "ncclCommWindowRegister first");
    const ncclWindow_t window = window_of(memory, comm);
    const int peer = 1 - rank;
    EXPECT_EQ(put(from, 2, window, 0, comm), ncclInvalidArgument);
    EXPECT_CONTAINS(last_error(), "peer is 2, but ranks are 0 to 1");
    EXPECT_EQ(put(from, -1, window, 0, comm), ncclInvalidArgument);
    EXPECT_EQ(put(from, peer, nullptr, 0, comm), ncclInvalidArgument);
    EXPECT_EQ(put(from, peer, window, 0, nullptr), ncclInvalidArgument);
    EXPECT_EQ(put(from, peer, window, 0, comm, 16), ncclInvalidArgument);
    EXPECT_EQ(put(from, peer, window, 0, comm, -1), ncclInvalidArgument);
    EXPECT_EQ(put(from, peer, window, 0, comm, 0, 1), ncclInvalidArgument);
    // The last that fits rank 1's does not fit rank 0's, which is shorter.
    EXPECT_EQ(put(from, 1, window, 72, comm), ncclSuccess);
    EXPECT_EQ(put(from, 0, window, 72, comm), ncclInvalidArgument);
    EXPECT_CONTAINS(last_error(), "2 elements of 4 bytes at offset 72 do not fit");
    EXPECT_EQ(put(from, 1, window, 76, comm), ncclInvalidArgument);
    EXPECT_EQ(put(from, 1, window, SIZE_MAX - 3, comm), ncclInvalidArgument);
    EXPECT_EQ(ncclPutSignal(from.data(), SIZE_MAX / 2, ncclInt32, peer, window, 0, 0, 0, 0, comm,
                            nullptr),
              ncclInvalidArgument);
    EXPECT_EQ(ncclPutSignal(nullptr, 1, ncclInt32, peer, window, 0, 0, 0, 0, comm, nullptr),
              ncclInvalidArgument);
    EXPECT_EQ(ncclPutSignal(from.data(), 1, static_cast<ncclDataType_t>(99), peer, window, 0, 0, 0,
                            0, comm, nullptr),
              ncclInvalidArgument);
    EXPECT_EQ(ncclPutSignal(from.data(), 1, ncclInt32, peer, window, 0, 0, 0, 8, comm, nullptr),
              ncclInvalidArgument);
    EXPECT_EQ(ncclSignal(peer, 0, 0, 1, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclWaitSignal(-1, nullptr, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclWaitSignal(1, nullptr, comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(wait_for({{-1, peer, 0, 0}}, comm), ncclInvalidArgument);
    EXPECT_EQ(wait_for({{1, 5, 0, 0}}, comm), ncclInvalidArgument);
    expect_success(ncclWaitSignal(0, nullptr, comm, nullptr));
    ncclComm_t other = nullptr;
    expect_success(ncclCommSplit(comm, 0, rank, &other, nullptr));
    EXPECT_EQ(put(from, peer, window, 0, other), ncclInvalidUsage) << "it has no signals yet";
    Ints its_memory(2);
    window_of(its_memory, other);
    EXPECT_EQ(put(from, peer, window, 0, other), ncclInvalidArgument);
    EXPECT_CONTAINS(last_error(), "of another communicator");
    expect_success(ncclCommDestroy(other));
    std::int32_t token = 0;  // both are done with the window
    expect_success(sum_in_place(token, comm));
    expect_success(ncclCommWindowDeregister(comm, window));
    EXPECT_EQ(put(from, peer, window, 0, comm), ncclInvalidArgument);
    EXPECT_EQ(ncclCommWindowDeregister(comm, window), ncclInvalidUsage);
    // In a group, which is spoilt by it.
    expect_success(ncclGroupStart());
    EXPECT_EQ(put(from, peer, window, 0, comm), ncclInvalidArgument);
    EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument);
    std::int32_t x = rank;
    expect_success(sum_in_place(x, comm));
    EXPECT_EQ(x, 1);
  });
}

}  // namespace
}  // namespace tutti::test
