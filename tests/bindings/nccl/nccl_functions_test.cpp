// The table of functions.h: it names what the library exports, and what it calls a refusal is one.
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "bindings/nccl/functions.h"
#include "bindings/nccl/nccl_device.h"
#include "tests/bindings/nccl/ranks.h"

namespace tutti::test {
namespace {

using Calls = std::map<std::string, std::function<ncclResult_t(ncclComm_t)>, std::less<>>;

/// Calls with right arguments of all functions that refuse.
const Calls& calls() {
  static ncclCftLeId le = 0;
  static std::size_t offset = 0;
  static const Calls all = {
      {"ncclDevCommCreate", [](ncclComm_t c) { return ncclDevCommCreate(c, nullptr, nullptr); }},
      {"ncclDevCommDestroy", [](ncclComm_t c) { return ncclDevCommDestroy(c, nullptr); }},
      {"ncclLsaBarrierCreateRequirement",
       [](ncclComm_t c) {
         return ncclLsaBarrierCreateRequirement(ncclTeamWorld(c), 1, nullptr, nullptr);
       }},
      {"ncclGinBarrierCreateRequirement",
       [](ncclComm_t c) {
         return ncclGinBarrierCreateRequirement(c, ncclTeamWorld(c), 1, nullptr, nullptr);
       }},
      {"ncclLLA2ACreateRequirement",
       [](ncclComm_t) { return ncclLLA2ACreateRequirement(1, 1, nullptr, nullptr); }},
      {"ncclGinOutboxCreateRequirement",
       [](ncclComm_t) { return ncclGinOutboxCreateRequirement(1, 1, nullptr, nullptr); }},
      {"ncclGinInboxA2ACreateRequirement",
       [](ncclComm_t c) {
         return ncclGinInboxA2ACreateRequirement(ncclTeamWorld(c), 1, 1, nullptr, nullptr);
       }},
      {"ncclGetMultimemDeviceLeInfo",
       [](ncclComm_t) { return ncclGetMultimemDeviceLeInfo(nullptr, 0, &le, &offset); }},
      {"ncclGetCftDeviceLeInfo",
       [](ncclComm_t c) {
         return ncclGetCftDeviceLeInfo(nullptr, 0, 0, ncclTeamCft(c), &le, &offset);
       }},
      {"ncclGetPeerDeviceLeInfo",
       [](ncclComm_t) { return ncclGetPeerDeviceLeInfo(nullptr, 0, 0, &le, &offset); }},
  };
  return all;
}

TEST(Functions, WhatTheTableCallsARefusalIsOne) {
  ncclComm_t comm = nullptr;
  expect_success(ncclCommInitAll(&comm, 1, nullptr));
  for (const nccl::Function& function : nccl::kFunctions) {
    const auto call = calls().find(function.name);
    if (function.refusal.empty()) continue;
    ASSERT_NE(call, calls().end()) << function.name << ": how is it called?";
    EXPECT_EQ(call->second(comm), ncclInvalidUsage) << function.name;
    EXPECT_EQ(last_error(), std::string(function.name) + ": " + std::string(function.refusal));
  }
  std::int32_t x = 5;
  expect_success(sum_in_place(x, comm));  // the communicator is as good as before
  expect_success(ncclCommDestroy(comm));
}

TEST(Functions, AreFoundWithAndWithoutTheP) {
  ASSERT_NE(nccl::find_function("ncclAllReduce"), nullptr);
  EXPECT_EQ(nccl::find_function("pncclAllReduce"), nccl::find_function("ncclAllReduce"));
  EXPECT_EQ(nccl::find_function("ncclAllReduceV"), nullptr);
  EXPECT_EQ(nccl::find_function("ppncclAllReduce"), nullptr);
  EXPECT_EQ(nccl::find_function("p"), nullptr);
}

}  // namespace
}  // namespace tutti::test
