// What came after NCCL 2.28: what answers does, and what is missing says so and what to use
// instead.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "bindings/nccl/nccl.h"
#include "bindings/nccl/nccl_device.h"
#include "tests/bindings/nccl/ranks.h"

namespace tutti::test {
namespace {

/// That `call`, which was just refused, says `text`.
void expect_refused(ncclResult_t call, const std::string& text) {
  EXPECT_EQ(call, ncclInvalidUsage);
  EXPECT_NE(last_error().find(text), std::string::npos) << last_error();
}

class OfOneRank : public testing::Test {
 protected:
  void SetUp() override { expect_success(ncclCommInitAll(&comm_, 1, nullptr)); }
  void TearDown() override { expect_success(ncclCommDestroy(comm_)); }

  ncclComm_t comm_ = nullptr;
};

TEST(Newer, CollectivesTakeAConfiguration) {
  run_ranks(3, [](int rank, ncclComm_t& comm) {
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    config.minCTAs = 1;
    config.maxCTAs = 4;
    config.userProfilerTag = 7;
    for (const ncclCollConfig_t* c : {static_cast<const ncclCollConfig_t*>(nullptr),
                                      static_cast<const ncclCollConfig_t*>(&config)}) {
      using Ints = std::vector<std::int32_t>;
      const Ints in = {rank, 10 + rank, 20 + rank};
      const ncclDataType_t type = ncclInt32;
      Ints out(3, -1), wide(9, -1);
      expect_success(
          ncclAllReduceConfig(in.data(), out.data(), 3, type, ncclSum, comm, nullptr, c));
      EXPECT_EQ(out, (Ints{3, 33, 63}));
      expect_success(ncclBroadcastConfig(in.data(), out.data(), 3, type, 1, comm, nullptr, c));
      EXPECT_EQ(out, (Ints{1, 11, 21}));
      out.assign(3, -1);
      expect_success(
          ncclReduceConfig(in.data(), out.data(), 3, type, ncclMax, 2, comm, nullptr, c));
      EXPECT_EQ(out, rank == 2 ? (Ints{2, 12, 22}) : Ints(3, -1));
      expect_success(ncclAllGatherConfig(in.data(), wide.data(), 3, type, comm, nullptr, c));
      EXPECT_EQ(wide, (Ints{0, 10, 20, 1, 11, 21, 2, 12, 22}));
      expect_success(
          ncclReduceScatterConfig(in.data(), out.data(), 1, type, ncclProd, comm, nullptr, c));
      EXPECT_EQ(out[0],
                (std::array{0, 10 * 11 * 12, 20 * 21 * 22}[static_cast<std::size_t>(rank)]));
      expect_success(ncclAlltoAllConfig(in.data(), out.data(), 1, type, comm, nullptr, c));
      EXPECT_EQ(out, (Ints{10 * rank, 10 * rank + 1, 10 * rank + 2}));
      wide.assign(9, -1);
      expect_success(ncclGatherConfig(in.data(), wide.data(), 3, type, 0, comm, nullptr, c));
      EXPECT_EQ(wide, rank == 0 ? (Ints{0, 10, 20, 1, 11, 21, 2, 12, 22}) : Ints(9, -1));
      expect_success(ncclScatterConfig(in.data(), out.data(), 1, type, 2, comm, nullptr, c));
      EXPECT_EQ(out[0], 10 * rank + 2);
    }
  });
}

TEST_F(OfOneRank, WhatAConfigurationInsistsOnIsRefused) {
  std::int32_t x = 5;
  const auto call = [&](const ncclCollConfig_t& config) {
    return ncclAllReduceConfig(&x, &x, 1, ncclInt32, ncclSum, comm_, nullptr, &config);
  };
  ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
  config.algSelection = "ring";
  expect_refused(call(config), "NCCL_ALGO");
  config.forceAlgSelection = 0;
  expect_success(call(config));
  config.launchCompletionEvent = reinterpret_cast<cudaEvent_t>(&x);
  expect_refused(call(config), "launchCompletionEvent");
  // An older header's struct ends before it, and what follows is something else.
  config.size = offsetof(ncclCollConfig_t, launchCompletionEvent);
  expect_success(call(config));
  config.magic = 0;
  EXPECT_EQ(call(config), ncclInvalidArgument);
}

TEST(Newer, AConfigOfEveryVersionIsRead) {
  ncclUniqueId id;
  const std::pair<unsigned, std::size_t> versions[] = {
      {21400, 24}, {21700, 40}, {21800, 48},  {22700, 72},  {22800, 80}, {22900, 88},
      {23000, 96}, {23005, 96}, {23100, 120}, {23203, 120}, {24000, 200}};
  for (const auto& [version, size] : versions) {
    // Of exactly that size, so that a sanitizer sees what is read behind it.
    std::vector<std::byte> bytes(size, std::byte{0x7f});
    const ncclConfig_t all = NCCL_CONFIG_INITIALIZER;
    std::memcpy(bytes.data(), &all, std::min(size, sizeof all));
    auto* const config = reinterpret_cast<ncclConfig_t*>(bytes.data());
    config->size = size;
    config->version = version;
    config->blocking = 0;
    ncclComm_t comm = nullptr;
    expect_success(ncclGetUniqueId(&id));
    EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, id, 0, config), ncclInProgress) << version;
    EXPECT_EQ(settled(comm), ncclSuccess);
    expect_success(ncclCommDestroy(comm));
  }
}

TEST(Newer, PropertiesAreThoseOfTheCommunicator) {
  std::array<std::uint64_t, 2> hashes{};
  run_ranks(2, [&](int rank, ncclComm_t& comm) {
    ncclCommProperties_t p = NCCL_COMM_PROPERTIES_INITIALIZER;
    std::memset(&p.rank, 0xff, sizeof p - offsetof(ncclCommProperties_t, rank));
    expect_success(ncclCommQueryProperties(comm, &p));
    EXPECT_EQ(p.rank, rank);
    EXPECT_EQ(p.nRanks, 2);
    EXPECT_EQ(p.nLsaTeams, 2);
    EXPECT_FALSE(p.deviceApiSupport || p.multimemSupport || p.cftSupport);
    EXPECT_TRUE(p.hostRmaSupport);
    EXPECT_EQ(p.ginType, NCCL_GIN_TYPE_NONE);
    hashes[static_cast<std::size_t>(rank)] = p.commHash;
    // That of 2.30 ends here.
    p.size = offsetof(ncclCommProperties_t, commHash);
    p.commHash = 17;
    expect_success(ncclCommQueryProperties(comm, &p));
    EXPECT_EQ(p.commHash, 17U);
    p.magic = 0;
    EXPECT_EQ(ncclCommQueryProperties(comm, &p), ncclInvalidUsage);
  });
  EXPECT_EQ(hashes[0], hashes[1]);
  EXPECT_NE(hashes[0], 0U);
}

TEST(Newer, WindowsAreLocated) {
  std::array<std::byte*, 2> places{};
  run_ranks(2, [&](int rank, ncclComm_t& comm) {
    std::vector<std::byte> memory(100);
    ncclWindow_t window = nullptr;
    expect_success(ncclCommWindowRegister(comm, memory.data(), 100, &window,
                                          NCCL_WIN_COLL_SYMMETRIC | NCCL_WIN_STRICT_ORDERING));
    void* at = nullptr;
    expect_success(ncclWinGetUserPtr(comm, window, &at));
    EXPECT_EQ(at, memory.data());
    expect_success(ncclGetLsaDevicePointer(window, 8, 0, &at));
    EXPECT_EQ(at, &memory[8]);
    EXPECT_EQ(ncclGetLsaDevicePointer(window, 8, 1, &at), ncclInvalidArgument);
    EXPECT_EQ(ncclGetLsaDevicePointer(window, 100, 0, &at), ncclInvalidArgument);
    expect_success(ncclGetPeerDevicePointer(window, 99, rank, &at));
    EXPECT_EQ(at, &memory[99]);
    // Of a rank of this process, as its own.
    places[static_cast<std::size_t>(rank)] = memory.data();
    std::int32_t all_are_there = 0;
    expect_success(sum_in_place(all_are_there, comm));
    expect_success(ncclGetPeerDevicePointer(window, 99, 1 - rank, &at));
    EXPECT_EQ(at, places[static_cast<std::size_t>(1 - rank)] + 99);
    EXPECT_EQ(ncclGetPeerDevicePointer(window, 100, 1 - rank, &at), ncclInvalidArgument);
    expect_success(sum_in_place(all_are_there, comm));
    EXPECT_EQ(ncclGetPeerDevicePointer(window, 0, 2, &at), ncclInvalidArgument);
    at = &at;
    expect_success(ncclGetLsaMultimemDevicePointer(window, 0, &at));
    EXPECT_EQ(at, nullptr);
    EXPECT_EQ(ncclGetMultimemDevicePointer(window, 0, {nullptr}, &at), ncclInvalidArgument);
    ncclCftLeId id = 0;
    std::size_t offset = 0;
    expect_refused(ncclGetPeerDeviceLeInfo(window, 0, rank, &id, &offset), "fabric");
    expect_success(ncclCommWindowDeregister(comm, window));
    EXPECT_EQ(ncclWinGetUserPtr(comm, window, &at), ncclInvalidArgument);
    // A window ends with its communicator.
    expect_success(ncclCommWindowRegister(comm, memory.data(), 100, &window, NCCL_WIN_DEFAULT));
    expect_success(ncclCommDestroy(comm));
    comm = nullptr;
    EXPECT_EQ(ncclGetLsaDevicePointer(window, 0, 0, &at), ncclInvalidArgument);
  });
}

/// Takes the key away again.
struct Encryption {
  explicit Encryption(const char* key) { expect_success(set(key)); }
  ~Encryption() { expect_success(set(nullptr)); }
  static ncclResult_t set(const char* key) {
    ncclEncryptionConfig_t config = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
    if (key != nullptr) config.mode = NCCL_ENCRYPTION_MODE_PSK;
    config.psk = key;
    return ncclSetEncryption(&config);
  }
};

TEST(Encryption, RanksWithTheKeyMeet) {
  const Encryption encryption("open sesame");
  run_ranks(3, [](int rank, ncclComm_t& comm) {
    std::int32_t x = rank;
    expect_success(sum_in_place(x, comm));
    EXPECT_EQ(x, 3);
  });
}

TEST(Encryption, ARankWithAnotherKeyIsRefused) {
  setenv("TUTTI_RENDEZVOUS_TIMEOUT", "1", 1);
  for (const char* const key : {static_cast<const char*>(nullptr), "sesame open"}) {
    const Encryption encryption("open sesame");
    ncclUniqueId id;
    expect_success(ncclGetUniqueId(&id));
    ncclComm_t inside = nullptr, outside = nullptr;
    ncclConfig_t config = nonblocking();
    EXPECT_EQ(ncclCommInitRankConfig(&inside, 2, id, 0, &config), ncclInProgress);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));  // it has read the key
    expect_success(Encryption::set(key));
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_NE(ncclCommInitRank(&outside, 2, id, 1), ncclSuccess);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    EXPECT_EQ(outside, nullptr);
    EXPECT_EQ(settled(inside), ncclRemoteError);
    expect_success(ncclCommAbort(inside));
  }
  unsetenv("TUTTI_RENDEZVOUS_TIMEOUT");
}

TEST(Encryption, WrongConfigurationsAreRefused) {
  EXPECT_EQ(ncclSetEncryption(nullptr), ncclInvalidArgument);
  EXPECT_EQ(Encryption::set(""), ncclInvalidArgument);
  ncclEncryptionConfig_t config = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
  expect_success(ncclSetEncryption(&config));
  config.mode = NCCL_ENCRYPTION_MODE_PSK;
  EXPECT_EQ(ncclSetEncryption(&config), ncclInvalidArgument);
  config.psk = "1234";
  config.mode = 5;
  EXPECT_EQ(ncclSetEncryption(&config), ncclInvalidArgument);
  config.mode = NCCL_ENCRYPTION_MODE_PSK;
  config.size = 24;
  EXPECT_EQ(ncclSetEncryption(&config), ncclInvalidArgument);
  config.size = sizeof config;
  config.magic = 0;
  EXPECT_EQ(ncclSetEncryption(&config), ncclInvalidArgument);
}

TEST(Newer, ParametersAreTheVariablesThatMeanSomething) {
  setenv("NCCL_MAX_CTAS", "300", 1);
  ncclParamHandle_t handle = nullptr;
  expect_success(ncclParamBind(&handle, "NCCL_MAX_CTAS"));
  std::int32_t number = 0;
  expect_success(ncclParamGetI32(handle, &number));
  EXPECT_EQ(number, 300);
  std::uint8_t small = 9;
  EXPECT_EQ(ncclParamGetU8(handle, &small), ncclInvalidArgument);
  EXPECT_EQ(small, 9);
  const char* text = nullptr;
  expect_success(ncclParamGetStr(handle, &text));
  EXPECT_STREQ(text, "300");
  std::array<char, 3> raw{};
  int length = 0;
  EXPECT_EQ(ncclParamGet(handle, raw.data(), 2, &length), ncclInvalidArgument);
  EXPECT_EQ(length, 3);
  expect_success(ncclParamGet(handle, raw.data(), 3, &length));
  EXPECT_EQ(std::string(raw.data(), 3), "300");
  expect_success(ncclParamGetParameter("NCCL_MAX_CTAS", &text, &length));
  EXPECT_STREQ(text, "300");
  EXPECT_EQ(length, 3);
  unsetenv("NCCL_MAX_CTAS");
  EXPECT_EQ(ncclParamGetI64(handle, nullptr), ncclInvalidArgument);
  expect_success(ncclParamGetStr(handle, &text));
  EXPECT_STREQ(text, "");

  const ncclParamHandle_t before = handle;
  EXPECT_EQ(ncclParamBind(&handle, "NCCL_BUFFSIZE"), ncclInvalidArgument);
  EXPECT_EQ(handle, before);
  EXPECT_EQ(ncclParamGetParameter("NCCL_BUFFSIZE", &text, &length), ncclInvalidArgument);
  EXPECT_EQ(text, nullptr);
  const char** keys = nullptr;
  expect_success(ncclParamGetAllParameterKeys(&keys, &length));
  EXPECT_TRUE(std::any_of(keys, keys + length,
                          [](const char* key) { return std::string(key) == "NCCL_COMM_ID"; }));
  testing::internal::CaptureStdout();
  ncclParamDumpAll();
  EXPECT_NE(testing::internal::GetCapturedStdout().find("NCCL_MAX_CTAS=\n"), std::string::npos);
}

TEST(Newer, ATimeoutHasAText) {
  EXPECT_STREQ(ncclGetErrorString(ncclTimeout), "timeout");
  EXPECT_STREQ(ncclGetErrorString(ncclNumResults), "unknown result code");
}

}  // namespace
}  // namespace tutti::test
