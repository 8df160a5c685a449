// ncclCommGrow: members and newcomers, after a stop too, and which ranks are refused.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <future>
#include <thread>

#include "bindings/nccl/nccl.h"
#include "tests/bindings/nccl/ranks.h"
#include "tests/support/contains.h"

namespace tutti::test {
namespace {

void expect_sum(ncclComm_t comm, int ranks, bool blocks = true) {
  int rank = -1, size = 0;
  expect_success(ncclCommUserRank(comm, &rank));
  expect_success(ncclCommCount(comm, &size));
  EXPECT_EQ(size, ranks);
  std::int32_t x = 1 << rank;  // each rank is there once
  if (blocks) {
    expect_success(sum_in_place(x, comm));
  } else {
    EXPECT_EQ(sum_in_place(x, comm), ncclInProgress);
    EXPECT_EQ(settled(comm), ncclSuccess);
  }
  EXPECT_EQ(x, (1 << ranks) - 1);
}

/// A new id of `comm`, which the newcomers get, too.
ncclUniqueId id_of(ncclComm_t comm, std::promise<ncclUniqueId>& newcomers) {
  ncclUniqueId id;
  expect_success(ncclCommGetUniqueId(comm, &id));
  newcomers.set_value(id);
  return id;
}

/// A rank that joins with the id that comes.
std::jthread newcomer(std::shared_future<ncclUniqueId> id, int rank, int ranks) {
  return std::jthread([=] {
    const ncclUniqueId its = id.get();
    ncclComm_t comm = nullptr;
    expect_success(ncclCommGrow(nullptr, ranks, &its, rank, &comm, nullptr));
    if (comm != nullptr) expect_sum(comm, ranks);
    expect_success(ncclCommDestroy(comm));
  });
}

TEST(Grow, MembersKeepTheirRanksAndTheirCommunicator) {
  std::promise<ncclUniqueId> promise;
  const auto id = promise.get_future().share();
  const std::jthread third = newcomer(id, 2, 4), fourth = newcomer(id, 3, 4);
  run_ranks(2, [&](int rank, ncclComm_t& comm) {
    ncclUniqueId mine;
    if (rank == 1) mine = id_of(comm, promise);
    ncclComm_t grown = nullptr;
    expect_success(ncclCommGrow(comm, 4, rank == 1 ? &mine : nullptr, -1, &grown, nullptr));
    int its_rank = -1;
    expect_success(ncclCommUserRank(grown, &its_rank));
    EXPECT_EQ(its_rank, rank);
    expect_sum(grown, 4);
    expect_sum(comm, 2);
    // The id is used up; there may be another.
    if (rank == 1) {
      EXPECT_EQ(ncclCommGrow(comm, 4, &mine, -1, &grown, nullptr), ncclInvalidArgument);
      expect_success(ncclCommGetUniqueId(comm, &mine));
    } else {
      expect_success(ncclCommDestroy(grown));
    }
  });
}

TEST(Grow, ARevokedCommunicatorCanGrow) {
  std::promise<ncclUniqueId> promise;
  const std::jthread third = newcomer(promise.get_future().share(), 2, 3);
  run_ranks(2, [&](int rank, ncclComm_t& comm) {
    expect_success(ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT));
    ncclUniqueId mine;
    if (rank == 0) mine = id_of(comm, promise);
    ncclComm_t grown = nullptr;
    expect_success(ncclCommGrow(comm, 3, rank == 0 ? &mine : nullptr, -1, &grown, nullptr));
    expect_sum(grown, 3);
    expect_success(ncclCommDestroy(grown));
  });
}

TEST(Grow, NonblockingCommunicatorsGrowInTheBackground) {
  std::promise<ncclUniqueId> promise;
  const std::jthread third = newcomer(promise.get_future().share(), 2, 3);
  run_ranks(
      2,
      [&](int rank, ncclComm_t& comm) {
        ncclUniqueId mine;
        if (rank == 0) mine = id_of(comm, promise);
        ncclComm_t grown = nullptr;
        EXPECT_EQ(ncclCommGrow(comm, 3, rank == 0 ? &mine : nullptr, -1, &grown, nullptr),
                  ncclInProgress);
        ASSERT_NE(grown, nullptr);
        EXPECT_EQ(settled(grown), ncclSuccess);
        EXPECT_EQ(settled(comm), ncclSuccess);
        expect_sum(grown, 3, false);
        expect_success(ncclCommDestroy(grown));
      },
      nonblocking());
}

TEST(Grow, WrongArgumentsAreRefused) {
  run_ranks(2, [](int rank, ncclComm_t& comm) {
    ncclComm_t grown = comm;
    ncclUniqueId id, mine;
    EXPECT_EQ(ncclCommGetUniqueId(comm, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclCommGetUniqueId(nullptr, &id), ncclInvalidArgument);
    expect_success(ncclGetUniqueId(&id));
    EXPECT_EQ(ncclCommGrow(comm, 3, &id, -1, &grown, nullptr), ncclInvalidArgument);
    EXPECT_CONTAINS(last_error(), "not the newest of ncclCommGetUniqueId");
    EXPECT_EQ(grown, nullptr);
    EXPECT_EQ(ncclCommGrow(comm, 3, nullptr, 2, &grown, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclCommGrow(comm, 2, nullptr, -1, &grown, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclCommGrow(comm, 3, nullptr, -1, nullptr, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclCommGrow(nullptr, 3, nullptr, 2, &grown, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclCommGrow(nullptr, 3, &id, 3, &grown, nullptr), ncclInvalidArgument);
    EXPECT_EQ(ncclCommGrow(nullptr, 3, &id, -1, &grown, nullptr), ncclInvalidArgument);
    // No root, and two.
    EXPECT_EQ(ncclCommGrow(comm, 3, nullptr, -1, &grown, nullptr), ncclInvalidUsage);
    EXPECT_CONTAINS(last_error(), "0 members have passed a uniqueId");
    expect_success(ncclCommGetUniqueId(comm, &mine));
    EXPECT_EQ(ncclCommGetUniqueId(comm, &id), ncclInvalidUsage);
    EXPECT_CONTAINS(last_error(), "has made an id before");
    EXPECT_EQ(ncclCommGrow(comm, 3, &mine, -1, &grown, nullptr), ncclInvalidUsage);
    EXPECT_CONTAINS(last_error(), "2 members have passed a uniqueId");
    EXPECT_EQ(grown, nullptr);
    std::int32_t x = rank;
    expect_success(sum_in_place(x, comm));  // as good as before
    EXPECT_EQ(x, 1);
    expect_success(ncclCommFinalize(comm));
    EXPECT_EQ(ncclCommGetUniqueId(comm, &id), ncclInvalidUsage);
    EXPECT_EQ(ncclCommGrow(comm, 3, nullptr, -1, &grown, nullptr), ncclInvalidUsage);
  });
}

}  // namespace
}  // namespace tutti::test
