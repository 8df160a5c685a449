// The functions of NCCL 2.32.3 that libnccl.so.2 has, and which of them do nothing but refuse. The
// library's refusals, `tutti doctor --nccl-client` and the tests read this table.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace tutti::nccl {

struct Function {
  std::string_view name;
  std::string_view refusal = {};  // what it says, with ncclInvalidUsage; "": it works
};

inline constexpr std::string_view kRefusesKernels =
    "communication inside CUDA kernels is not supported by Tutti; use the collectives of nccl.h";
inline constexpr std::string_view kRefusesFabric =
    "there is no compute fabric to address memory by (ncclCommQueryProperties: cftSupport)";

/// By name. Each exists as pncclX, too.
inline constexpr std::array kFunctions = {
    Function{"ncclAllGather"},
    Function{"ncclAllGatherConfig"},
    Function{"ncclAllReduce"},
    Function{"ncclAllReduceConfig"},
    Function{"ncclAlltoAll"},
    Function{"ncclAlltoAllConfig"},
    Function{"ncclBcast"},
    Function{"ncclBroadcast"},
    Function{"ncclBroadcastConfig"},
    Function{"ncclCommAbort"},
    Function{"ncclCommCount"},
    Function{"ncclCommCuDevice"},
    Function{"ncclCommDeregister"},
    Function{"ncclCommDestroy"},
    Function{"ncclCommFinalize"},
    Function{"ncclCommGetAsyncError"},
    Function{"ncclCommGetUniqueId"},
    Function{"ncclCommGrow"},
    Function{"ncclCommInitAll"},
    Function{"ncclCommInitRank"},
    Function{"ncclCommInitRankConfig"},
    Function{"ncclCommInitRankScalable"},
    Function{"ncclCommMemStats"},
    Function{"ncclCommQueryProperties"},
    Function{"ncclCommRegister"},
    Function{"ncclCommResume"},
    Function{"ncclCommRevoke"},
    Function{"ncclCommShrink"},
    Function{"ncclCommSplit"},
    Function{"ncclCommSuspend"},
    Function{"ncclCommUserRank"},
    Function{"ncclCommWindowDeregister"},
    Function{"ncclCommWindowRegister"},
    Function{"ncclDevCommCreate", kRefusesKernels},
    Function{"ncclDevCommDestroy", kRefusesKernels},
    Function{"ncclGather"},
    Function{"ncclGatherConfig"},
    Function{"ncclGetCftDeviceLeInfo", kRefusesFabric},
    Function{"ncclGetErrorString"},
    Function{"ncclGetLastError"},
    Function{"ncclGetLsaDevicePointer"},
    Function{"ncclGetLsaMultimemDevicePointer"},
    Function{"ncclGetMultimemDeviceLeInfo", kRefusesFabric},
    Function{"ncclGetMultimemDevicePointer"},
    Function{"ncclGetPeerDeviceLeInfo", kRefusesFabric},
    Function{"ncclGetPeerDevicePointer"},
    Function{"ncclGetUniqueId"},
    Function{"ncclGetVersion"},
    Function{"ncclGinBarrierCreateRequirement", kRefusesKernels},
    Function{"ncclGinInboxA2ACreateRequirement", kRefusesKernels},
    Function{"ncclGinOutboxCreateRequirement", kRefusesKernels},
    Function{"ncclGroupEnd"},
    Function{"ncclGroupSimulateEnd"},
    Function{"ncclGroupStart"},
    Function{"ncclLLA2ACalcSlots"},
    Function{"ncclLLA2ACreateRequirement", kRefusesKernels},
    Function{"ncclLsaBarrierCreateRequirement", kRefusesKernels},
    Function{"ncclMemAlloc"},
    Function{"ncclMemFree"},
    Function{"ncclParamBind"},
    Function{"ncclParamDumpAll"},
    Function{"ncclParamGet"},
    Function{"ncclParamGetAllParameterKeys"},
    Function{"ncclParamGetI16"},
    Function{"ncclParamGetI32"},
    Function{"ncclParamGetI64"},
    Function{"ncclParamGetI8"},
    Function{"ncclParamGetParameter"},
    Function{"ncclParamGetStr"},
    Function{"ncclParamGetU16"},
    Function{"ncclParamGetU32"},
    Function{"ncclParamGetU64"},
    Function{"ncclParamGetU8"},
    Function{"ncclPutSignal"},
    Function{"ncclRecv"},
    Function{"ncclRedOpCreatePreMulSum"},
    Function{"ncclRedOpDestroy"},
    Function{"ncclReduce"},
    Function{"ncclReduceConfig"},
    Function{"ncclReduceScatter"},
    Function{"ncclReduceScatterConfig"},
    Function{"ncclResetDebugInit"},
    Function{"ncclScatter"},
    Function{"ncclScatterConfig"},
    Function{"ncclSend"},
    Function{"ncclSetEncryption"},
    Function{"ncclSignal"},
    Function{"ncclTeamCft"},
    Function{"ncclTeamCftMultimem"},
    Function{"ncclTeamLsa"},
    Function{"ncclTeamRail"},
    Function{"ncclTeamRankToLsa"},
    Function{"ncclTeamRankToWorld"},
    Function{"ncclTeamWorld"},
    Function{"ncclWaitSignal"},
    Function{"ncclWinGetUserPtr"},
};

/// The function of this name, with or without the p in front; null: NCCL 2.32.3 has none.
constexpr const Function* find_function(std::string_view name) {
  if (name.starts_with('p')) name.remove_prefix(1);
  const auto found = std::ranges::find(kFunctions, name, &Function::name);
  return found != kFunctions.end() ? &*found : nullptr;
}

}  // namespace tutti::nccl
