// Every argument that must be refused, with a sentence, and the config struct of older versions.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "bindings/nccl/nccl.h"
#include "bindings/nccl/nccl_device.h"
#include "tests/bindings/nccl/ranks.h"
#include "tests/support/temporary_folder.h"

namespace tutti::test {
namespace {

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

  // As of another library: rank 0's process, or this one, has loaded that.
  ncclUniqueId foreign;
  std::memset(foreign.internal, 0x5a, sizeof foreign.internal);
  EXPECT_EQ(ncclCommInitRank(&comm, 1, foreign, 0), ncclInvalidArgument);
  EXPECT_NE(last_error().find("this ncclUniqueId is none of Tutti's"), std::string::npos)
      << last_error();
  EXPECT_EQ(last_error().find("this process has loaded"), std::string::npos) << last_error();
  const TemporaryFolder folder;
  const std::string library = folder.path("libnccl.so.2");
  Dl_info any{};
  ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "cos"), &any), 0);
  std::filesystem::copy_file(std::filesystem::canonical(any.dli_fname), library);
  void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  ASSERT_NE(loaded, nullptr) << dlerror();
  EXPECT_EQ(ncclCommInitRank(&comm, 1, foreign, 0), ncclInvalidArgument);
  EXPECT_NE(last_error().find("this process has loaded " + library + ", too"), std::string::npos)
      << last_error();
  dlclose(loaded);

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

TEST(Arguments, ADestroyedCommunicatorIsRefusedByEveryFunction) {
  ncclComm_t comm = nullptr, made = nullptr;
  expect_success(ncclCommInitAll(&comm, 1, nullptr));
  expect_success(ncclCommDestroy(comm));
  std::int32_t x = 1;
  std::uint64_t bytes = 0;
  ncclUniqueId id;
  ncclWindow_t window = nullptr;
  ncclWaitSignalDesc_t wait{1, 0, 0, 0};
  ncclCommProperties_t properties = NCCL_COMM_PROPERTIES_INITIALIZER;
  void* at = nullptr;
  int excluded = 0;
  const std::pair<const char*, ncclResult_t> results[] = {
      {"AllReduce", sum_in_place(x, comm)},
      {"AllReduceConfig",
       ncclAllReduceConfig(&x, &x, 1, ncclInt32, ncclSum, comm, nullptr, nullptr)},
      {"Send", ncclSend(&x, 1, ncclInt32, 0, comm, nullptr)},
      {"PutSignal", ncclPutSignal(&x, 1, ncclInt32, 0, nullptr, 0, 0, 0, 0, comm, nullptr)},
      {"Signal", ncclSignal(0, 0, 0, 0, comm, nullptr)},
      {"WaitSignal", ncclWaitSignal(1, &wait, comm, nullptr)},
      {"WindowRegister", ncclCommWindowRegister(comm, &x, 4, &window, NCCL_WIN_DEFAULT)},
      {"WindowDeregister", ncclCommWindowDeregister(comm, window)},
      {"WinGetUserPtr", ncclWinGetUserPtr(comm, window, &at)},
      {"GetUniqueId", ncclCommGetUniqueId(comm, &id)},
      {"Grow", ncclCommGrow(comm, 2, nullptr, -1, &made, nullptr)},
      {"Split", ncclCommSplit(comm, 0, 0, &made, nullptr)},
      {"Shrink", ncclCommShrink(comm, &excluded, 1, &made, nullptr, NCCL_SHRINK_ABORT)},
      {"Revoke", ncclCommRevoke(comm, NCCL_REVOKE_DEFAULT)},
      {"Suspend", ncclCommSuspend(comm, NCCL_SUSPEND_MEM)},
      {"Resume", ncclCommResume(comm)},
      {"MemStats", ncclCommMemStats(comm, ncclStatGpuMemTotal, &bytes)},
      {"QueryProperties", ncclCommQueryProperties(comm, &properties)},
      {"Finalize", ncclCommFinalize(comm)},
      {"Abort", ncclCommAbort(comm)},
      {"Destroy", ncclCommDestroy(comm)},
  };
  for (const auto& [function, result] : results) {
    EXPECT_EQ(result, ncclInvalidArgument) << function;
  }
  EXPECT_EQ(made, nullptr);
}

}  // namespace
}  // namespace tutti::test
