// The variables, the log, memory, and the host functions of the device interface.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "bindings/nccl/nccl_device.h"
#include "tests/bindings/nccl/ranks.h"
#include "tests/support/temporary_folder.h"

namespace tutti::test {
namespace {

TEST(Environment, TheInterfaceOfTheRendezvousIsChosen) {
  ncclUniqueId id;
  for (const char* good : {"lo", "=lo", "nosuch,lo", "^nosuch"}) {
    setenv("NCCL_SOCKET_IFNAME", good, 1);
    expect_success(ncclGetUniqueId(&id));
  }
  for (const char* bad : {"nosuch", "=l", "^lo,e,d,v,w,b,t,c"}) {
    setenv("NCCL_SOCKET_IFNAME", bad, 1);
    EXPECT_EQ(ncclGetUniqueId(&id), ncclInvalidUsage) << bad;
    EXPECT_NE(last_error().find(bad), std::string::npos) << last_error();
  }
  unsetenv("NCCL_SOCKET_IFNAME");
  setenv("NCCL_COMM_ID", std::string(120, 'x').c_str(), 1);
  EXPECT_EQ(ncclGetUniqueId(&id), ncclInvalidArgument);
  unsetenv("NCCL_COMM_ID");
}

/// What rank r has at place i; sums of such numbers depend on their order.
float number(int rank, std::size_t i) {
  return 1.0f / static_cast<float>((i % 97 + 1) * static_cast<std::size_t>(2 * rank + 3));
}

TEST(Environment, InvariantBitsAreThoseOfTheCanonicalExpression) {
  constexpr std::size_t kCount = 5000;
  const auto sums = [](std::size_t parts) {
    std::vector<std::vector<float>> of_ranks(5);
    run_ranks(5, [&](int rank, ncclComm_t& comm) {
      std::vector<float> x(kCount);
      for (std::size_t i = 0; i < kCount; ++i) x[i] = number(rank, i);
      for (std::size_t p = 0; p < parts; ++p) {
        float* const part = x.data() + p * kCount / parts;
        expect_success(
            ncclAllReduce(part, part, kCount / parts, ncclFloat, ncclSum, comm, nullptr));
      }
      of_ranks[static_cast<std::size_t>(rank)] = x;
    });
    return of_ranks;
  };
  std::vector<float> canonical(kCount), in_turn(kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto x = [&](int rank) { return number(rank, i); };
    canonical[i] = ((x(0) + x(1)) + (x(2) + x(3))) + x(4);
    in_turn[i] = (((x(0) + x(1)) + x(2)) + x(3)) + x(4);
  }
  EXPECT_NE(canonical, in_turn);  // so the test can fail
  setenv("TUTTI_INVARIANT", "1", 1);
  for (const std::size_t parts : {1, 10}) {
    for (const std::vector<float>& x : sums(parts)) EXPECT_EQ(x, canonical);
  }
  unsetenv("TUTTI_INVARIANT");
}

TEST(Environment, RanksThatDisagreeAboutInvariantBitsAreTold) {
  ncclUniqueId id;
  expect_success(ncclGetUniqueId(&id));
  ncclComm_t first = nullptr;
  ncclConfig_t config = nonblocking();
  setenv("TUTTI_INVARIANT", "1", 1);
  EXPECT_EQ(ncclCommInitRankConfig(&first, 2, id, 0, &config), ncclInProgress);
  unsetenv("TUTTI_INVARIANT");
  ncclComm_t second = nullptr;
  EXPECT_EQ(ncclCommInitRank(&second, 2, id, 1), ncclInvalidUsage);
  EXPECT_NE(last_error().find("rank 0 asks for invariant bits and rank 1 does not: set "
                              "TUTTI_INVARIANT"),
            std::string::npos)
      << last_error();
  EXPECT_EQ(settled(first), ncclInvalidUsage);
  expect_success(ncclCommAbort(first));
}

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
    EXPECT_NE(last_error().find("CUDA kernels"), std::string::npos) << last_error();
    EXPECT_EQ(ncclLLA2ACalcSlots(3, 9), 6);
  });
  EXPECT_EQ(ncclTeamWorld(nullptr).nRanks, 0);
  EXPECT_EQ(ncclTeamRankToWorld(nullptr, {1, 0, 1}, 0), -1);
}

TEST(Log, GoesWhereTheVariablesSay) {
  const TemporaryFolder folder;
  const std::string pattern = folder.path("log-%p.txt");
  setenv("NCCL_DEBUG", "info", 1);
  setenv("NCCL_DEBUG_FILE", pattern.c_str(), 1);
  setenv("NCCL_BUFFSIZE", "1", 1);
  setenv("NCCL_PROTO", "LL:2", 1);
  setenv("NCCL_ALGO", "NVLS,Ring", 1);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  ncclResetDebugInit();
  ncclComm_t comm = nullptr;
  ncclUniqueId id;
  expect_success(ncclGetUniqueId(&id));
  expect_success(ncclCommInitRank(&comm, 1, id, 0));
  EXPECT_EQ(ncclCommFinalize(nullptr), ncclInvalidArgument);
  for (const char* name :
       {"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_BUFFSIZE", "NCCL_PROTO", "NCCL_ALGO"}) {
    unsetenv(name);
  }
  ncclResetDebugInit();
#pragma GCC diagnostic pop
  EXPECT_EQ(ncclCommFinalize(nullptr), ncclInvalidArgument);
  expect_success(ncclCommDestroy(comm));
  const std::string text = folder.read("log-" + std::to_string(getpid()) + ".txt");
  EXPECT_NE(text.find("NCCL version 2.32.3"), std::string::npos) << text;
  EXPECT_NE(text.find("NCCL_BUFFSIZE=1 has no meaning"), std::string::npos) << text;
  EXPECT_NE(text.find("NCCL_PROTO=LL:2 is no list"), std::string::npos) << text;
  EXPECT_NE(text.find("Init COMPLETE"), std::string::npos) << text;
  const std::size_t warning = text.find("NCCL WARN ncclCommFinalize: the argument comm is NULL");
  EXPECT_NE(warning, std::string::npos) << text;
  EXPECT_EQ(text.find("NCCL WARN", warning + 1), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::test
