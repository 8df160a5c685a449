// Thread ranks with an NCCL communicator each.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "bindings/nccl/nccl.h"

namespace tutti::test {

inline std::string last_error() { return ncclGetLastError(nullptr); }

inline ncclResult_t sum_in_place(std::int32_t& x, ncclComm_t comm) {
  return ncclAllReduce(&x, &x, 1, ncclInt32, ncclSum, comm, nullptr);
}

inline void expect_success(ncclResult_t result) {
  EXPECT_EQ(result, ncclSuccess) << ncclGetErrorString(result) << ": " << ncclGetLastError(nullptr);
}

/// Polls until nothing is in progress; what came of it.
inline ncclResult_t settled(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) {
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) return ncclInternalError;
    std::this_thread::yield();
  }
  return state;
}

inline ncclConfig_t nonblocking() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return config;
}

/// Runs `body` on `ranks` threads, with a communicator of them all, which it may end itself by
/// setting it to null.
inline void run_ranks(int ranks, const std::function<void(int rank, ncclComm_t& comm)>& body,
                      const ncclConfig_t& config = NCCL_CONFIG_INITIALIZER) {
  ncclUniqueId id;
  expect_success(ncclGetUniqueId(&id));
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      ncclConfig_t mine = config;
      ncclComm_t comm = nullptr;
      const ncclResult_t result = ncclCommInitRankConfig(&comm, ranks, id, r, &mine);
      if (mine.blocking == 0) {
        EXPECT_EQ(result, ncclInProgress);
        EXPECT_NE(comm, nullptr);
        EXPECT_EQ(settled(comm), ncclSuccess);
      } else {
        expect_success(result);
      }
      body(r, comm);
      expect_success(ncclCommDestroy(comm));
    });
  }
}

}  // namespace tutti::test
