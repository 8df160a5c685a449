// The binary interface of NCCL 2.28.9, and of 2.32.3 where the header is that one's, as
// compile-time checks. Included after an nccl.h and nccl_device.h: once after ours, and after
// NVIDIA's where there are some, so that all agree with this and so with each other.
#include <cstddef>
#include <initializer_list>
#include <type_traits>

#define TUTTI_SIGNATURE(function, type)                                \
  static_assert(std::is_same_v<decltype(&function), type>, #function); \
  static_assert(std::is_same_v<decltype(&p##function), type>, "p" #function);
#define TUTTI_DEVICE_SIGNATURE(function, type) \
  [[maybe_unused]] constexpr auto has_##function = static_cast<type>(&function);
#define TUTTI_FIELD(type, field, offset) static_assert(offsetof(type, field) == (offset), #field);
#define TUTTI_VALUE(name, value) static_assert(static_cast<long long>(name) == (value), #name);

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // ncclResetDebugInit

static_assert(sizeof(ncclUniqueId) == 128);
static_assert(std::is_trivially_copyable_v<ncclUniqueId>);
static_assert(sizeof(ncclComm_t) == sizeof(void*) && sizeof(ncclWindow_t) == sizeof(void*));
static_assert(sizeof(ncclResult_t) == 4 && sizeof(ncclDataType_t) == 4);
static_assert(sizeof(ncclRedOp_t) == 4 && sizeof(ncclScalarResidence_t) == 4);
static_assert(sizeof(ncclTeam_t) == 12);

constexpr bool kNewest = NCCL_VERSION_CODE == 23203;
static_assert(sizeof(ncclConfig_t) == (kNewest ? 120 : 80));
TUTTI_FIELD(ncclConfig_t, size, 0)
TUTTI_FIELD(ncclConfig_t, magic, 8)
TUTTI_FIELD(ncclConfig_t, version, 12)
TUTTI_FIELD(ncclConfig_t, blocking, 16)
TUTTI_FIELD(ncclConfig_t, cgaClusterSize, 20)
TUTTI_FIELD(ncclConfig_t, minCTAs, 24)
TUTTI_FIELD(ncclConfig_t, maxCTAs, 28)
TUTTI_FIELD(ncclConfig_t, netName, 32)
TUTTI_FIELD(ncclConfig_t, splitShare, 40)
TUTTI_FIELD(ncclConfig_t, trafficClass, 44)
TUTTI_FIELD(ncclConfig_t, commName, 48)
TUTTI_FIELD(ncclConfig_t, collnetEnable, 56)
TUTTI_FIELD(ncclConfig_t, CTAPolicy, 60)
TUTTI_FIELD(ncclConfig_t, shrinkShare, 64)
TUTTI_FIELD(ncclConfig_t, nvlsCTAs, 68)
TUTTI_FIELD(ncclConfig_t, nChannelsPerNetPeer, 72)
TUTTI_FIELD(ncclConfig_t, nvlinkCentricSched, 76)

static_assert(sizeof(ncclSimInfo_t) == 24);
TUTTI_FIELD(ncclSimInfo_t, size, 0)
TUTTI_FIELD(ncclSimInfo_t, magic, 8)
TUTTI_FIELD(ncclSimInfo_t, version, 12)
TUTTI_FIELD(ncclSimInfo_t, estimatedTime, 16)
TUTTI_FIELD(ncclTeam_t, nRanks, 0)
TUTTI_FIELD(ncclTeam_t, rank, 4)
TUTTI_FIELD(ncclTeam_t, stride, 8)

constexpr ncclConfig_t kConfig = NCCL_CONFIG_INITIALIZER;
static_assert(kConfig.size == sizeof(ncclConfig_t) && kConfig.magic == 0xcafebeef &&
              kConfig.version == NCCL_VERSION_CODE);
static_assert(kConfig.blocking == NCCL_CONFIG_UNDEF_INT && kConfig.netName == nullptr);
static_assert(kConfig.commName == nullptr && kConfig.nvlinkCentricSched == NCCL_CONFIG_UNDEF_INT);
constexpr ncclSimInfo_t kSimInfo = NCCL_SIM_INFO_INITIALIZER;
static_assert(kSimInfo.size == 24 && kSimInfo.magic == 0x74685283 &&
              kSimInfo.version == NCCL_VERSION_CODE);

TUTTI_VALUE(NCCL_VERSION_CODE, kNewest ? 23203 : 22809)
TUTTI_VALUE(NCCL_VERSION_CODE, NCCL_VERSION(NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH))
TUTTI_VALUE(NCCL_MAJOR, 2)
TUTTI_VALUE(NCCL_VERSION(2, 8, 4), 2804)
TUTTI_VALUE(NCCL_VERSION(2, 14, 0), 21400)
TUTTI_VALUE(NCCL_UNIQUE_ID_BYTES, 128)
TUTTI_VALUE(NCCL_CONFIG_UNDEF_INT, -2147483648LL)
TUTTI_VALUE(NCCL_SPLIT_NOCOLOR, -1)
TUTTI_VALUE(NCCL_SHRINK_DEFAULT, 0)
TUTTI_VALUE(NCCL_SHRINK_ABORT, 1)
TUTTI_VALUE(NCCL_REVOKE_DEFAULT, 0)
TUTTI_VALUE(NCCL_WIN_DEFAULT, 0)
TUTTI_VALUE(NCCL_WIN_COLL_SYMMETRIC, 1)
TUTTI_VALUE(NCCL_WIN_REQUIRED_ALIGNMENT, 4096)
TUTTI_VALUE(NCCL_CTA_POLICY_DEFAULT, 0)
TUTTI_VALUE(NCCL_CTA_POLICY_EFFICIENCY, 1)
TUTTI_VALUE(NCCL_CTA_POLICY_ZERO, 2)
TUTTI_VALUE(ncclSuccess, 0)
TUTTI_VALUE(ncclUnhandledCudaError, 1)
TUTTI_VALUE(ncclSystemError, 2)
TUTTI_VALUE(ncclInternalError, 3)
TUTTI_VALUE(ncclInvalidArgument, 4)
TUTTI_VALUE(ncclInvalidUsage, 5)
TUTTI_VALUE(ncclRemoteError, 6)
TUTTI_VALUE(ncclInProgress, 7)
TUTTI_VALUE(ncclNumResults, kNewest ? 9 : 8)
TUTTI_VALUE(ncclSum, 0)
TUTTI_VALUE(ncclProd, 1)
TUTTI_VALUE(ncclMax, 2)
TUTTI_VALUE(ncclMin, 3)
TUTTI_VALUE(ncclAvg, 4)
TUTTI_VALUE(ncclNumOps, 5)
TUTTI_VALUE(ncclMaxRedOp, 0x7fffffff)
TUTTI_VALUE(ncclInt8, 0)
TUTTI_VALUE(ncclChar, 0)
TUTTI_VALUE(ncclUint8, 1)
TUTTI_VALUE(ncclInt32, 2)
TUTTI_VALUE(ncclInt, 2)
TUTTI_VALUE(ncclUint32, 3)
TUTTI_VALUE(ncclInt64, 4)
TUTTI_VALUE(ncclUint64, 5)
TUTTI_VALUE(ncclFloat16, 6)
TUTTI_VALUE(ncclHalf, 6)
TUTTI_VALUE(ncclFloat32, 7)
TUTTI_VALUE(ncclFloat, 7)
TUTTI_VALUE(ncclFloat64, 8)
TUTTI_VALUE(ncclDouble, 8)
TUTTI_VALUE(ncclBfloat16, 9)
TUTTI_VALUE(ncclFloat8e4m3, 10)
TUTTI_VALUE(ncclFloat8e5m2, 11)
TUTTI_VALUE(ncclNumTypes, 12)
TUTTI_VALUE(ncclScalarDevice, 0)
TUTTI_VALUE(ncclScalarHostImmediate, 1)

TUTTI_SIGNATURE(ncclGetVersion, ncclResult_t (*)(int*))
TUTTI_SIGNATURE(ncclGetErrorString, const char* (*)(ncclResult_t))
TUTTI_SIGNATURE(ncclGetLastError, const char* (*)(ncclComm_t))
#ifndef ncclResetDebugInit  // newer headers have made it a macro that does nothing
TUTTI_SIGNATURE(ncclResetDebugInit, void (*)())
#endif
TUTTI_SIGNATURE(ncclGetUniqueId, ncclResult_t (*)(ncclUniqueId*))
TUTTI_SIGNATURE(ncclCommInitRank, ncclResult_t (*)(ncclComm_t*, int, ncclUniqueId, int))
TUTTI_SIGNATURE(ncclCommInitRankConfig,
                ncclResult_t (*)(ncclComm_t*, int, ncclUniqueId, int, ncclConfig_t*))
TUTTI_SIGNATURE(ncclCommInitRankScalable,
                ncclResult_t (*)(ncclComm_t*, int, int, int, ncclUniqueId*, ncclConfig_t*))
TUTTI_SIGNATURE(ncclCommInitAll, ncclResult_t (*)(ncclComm_t*, int, const int*))
TUTTI_SIGNATURE(ncclCommFinalize, ncclResult_t (*)(ncclComm_t))
TUTTI_SIGNATURE(ncclCommDestroy, ncclResult_t (*)(ncclComm_t))
TUTTI_SIGNATURE(ncclCommAbort, ncclResult_t (*)(ncclComm_t))
TUTTI_SIGNATURE(ncclCommRevoke, ncclResult_t (*)(ncclComm_t, int))
TUTTI_SIGNATURE(ncclCommSplit, ncclResult_t (*)(ncclComm_t, int, int, ncclComm_t*, ncclConfig_t*))
TUTTI_SIGNATURE(ncclCommShrink,
                ncclResult_t (*)(ncclComm_t, int*, int, ncclComm_t*, ncclConfig_t*, int))
TUTTI_SIGNATURE(ncclCommGetAsyncError, ncclResult_t (*)(ncclComm_t, ncclResult_t*))
TUTTI_SIGNATURE(ncclCommCount, ncclResult_t (*)(const ncclComm_t, int*))
TUTTI_SIGNATURE(ncclCommCuDevice, ncclResult_t (*)(const ncclComm_t, int*))
TUTTI_SIGNATURE(ncclCommUserRank, ncclResult_t (*)(const ncclComm_t, int*))
TUTTI_SIGNATURE(ncclMemAlloc, ncclResult_t (*)(void**, size_t))
TUTTI_SIGNATURE(ncclMemFree, ncclResult_t (*)(void*))
TUTTI_SIGNATURE(ncclCommRegister, ncclResult_t (*)(const ncclComm_t, void*, size_t, void**))
TUTTI_SIGNATURE(ncclCommDeregister, ncclResult_t (*)(const ncclComm_t, void*))
TUTTI_SIGNATURE(ncclCommWindowRegister,
                ncclResult_t (*)(ncclComm_t, void*, size_t, ncclWindow_t*, int))
TUTTI_SIGNATURE(ncclCommWindowDeregister, ncclResult_t (*)(ncclComm_t, ncclWindow_t))
TUTTI_SIGNATURE(ncclRedOpCreatePreMulSum, ncclResult_t (*)(ncclRedOp_t*, void*, ncclDataType_t,
                                                           ncclScalarResidence_t, ncclComm_t))
TUTTI_SIGNATURE(ncclRedOpDestroy, ncclResult_t (*)(ncclRedOp_t, ncclComm_t))
TUTTI_SIGNATURE(ncclReduce, ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t,
                                             ncclRedOp_t, int, ncclComm_t, cudaStream_t))
TUTTI_SIGNATURE(ncclBcast,
                ncclResult_t (*)(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))
TUTTI_SIGNATURE(ncclBroadcast, ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, int,
                                                ncclComm_t, cudaStream_t))
TUTTI_SIGNATURE(ncclAllReduce, ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t,
                                                ncclRedOp_t, ncclComm_t, cudaStream_t))
TUTTI_SIGNATURE(ncclReduceScatter, ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t,
                                                    ncclRedOp_t, ncclComm_t, cudaStream_t))
TUTTI_SIGNATURE(ncclAllGather, ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t,
                                                ncclComm_t, cudaStream_t))
TUTTI_SIGNATURE(ncclAlltoAll, ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t,
                                               ncclComm_t, cudaStream_t))
TUTTI_SIGNATURE(ncclGather, ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, int,
                                             ncclComm_t, cudaStream_t))
TUTTI_SIGNATURE(ncclScatter, ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, int,
                                              ncclComm_t, cudaStream_t))
TUTTI_SIGNATURE(ncclSend, ncclResult_t (*)(const void*, size_t, ncclDataType_t, int, ncclComm_t,
                                           cudaStream_t))
TUTTI_SIGNATURE(ncclRecv,
                ncclResult_t (*)(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t))
TUTTI_SIGNATURE(ncclGroupStart, ncclResult_t (*)())
TUTTI_SIGNATURE(ncclGroupEnd, ncclResult_t (*)())
TUTTI_SIGNATURE(ncclGroupSimulateEnd, ncclResult_t (*)(ncclSimInfo_t*))

// NVIDIA's header has overloads of some for device code, and no pncclX of these.
TUTTI_DEVICE_SIGNATURE(ncclDevCommCreate,
                       ncclResult_t (*)(ncclComm_t, ncclDevCommRequirements_t const*,
                                        ncclDevComm_t*))
TUTTI_DEVICE_SIGNATURE(ncclDevCommDestroy, ncclResult_t (*)(ncclComm_t, ncclDevComm_t const*))
TUTTI_DEVICE_SIGNATURE(ncclTeamWorld, ncclTeam_t (*)(ncclComm_t))
TUTTI_DEVICE_SIGNATURE(ncclTeamLsa, ncclTeam_t (*)(ncclComm_t))
TUTTI_DEVICE_SIGNATURE(ncclTeamRail, ncclTeam_t (*)(ncclComm_t))
TUTTI_DEVICE_SIGNATURE(ncclTeamRankToWorld, int (*)(ncclComm_t, ncclTeam_t, int))
TUTTI_DEVICE_SIGNATURE(ncclTeamRankToLsa, int (*)(ncclComm_t, ncclTeam_t, int))
TUTTI_DEVICE_SIGNATURE(ncclLsaBarrierCreateRequirement,
                       ncclResult_t (*)(ncclTeam_t, int, ncclLsaBarrierHandle_t*,
                                        ncclDevResourceRequirements_t*))
TUTTI_DEVICE_SIGNATURE(ncclGinBarrierCreateRequirement,
                       ncclResult_t (*)(ncclComm_t, ncclTeam_t, int, ncclGinBarrierHandle_t*,
                                        ncclDevResourceRequirements_t*))
TUTTI_DEVICE_SIGNATURE(ncclLLA2ACalcSlots, int (*)(int, int))
TUTTI_DEVICE_SIGNATURE(ncclLLA2ACreateRequirement, ncclResult_t (*)(int, int, ncclLLA2AHandle_t*,
                                                                    ncclDevResourceRequirements_t*))

#if NCCL_VERSION_CODE == 23203

TUTTI_FIELD(ncclConfig_t, graphUsageMode, 80)
TUTTI_FIELD(ncclConfig_t, numRmaCtx, 84)
TUTTI_FIELD(ncclConfig_t, maxP2pPeers, 88)
TUTTI_FIELD(ncclConfig_t, graphStreamOrdering, 92)
TUTTI_FIELD(ncclConfig_t, launchOrderImplicit, 96)
TUTTI_FIELD(ncclConfig_t, numRmaSig, 100)
TUTTI_FIELD(ncclConfig_t, rmaEagerInit, 104)
TUTTI_FIELD(ncclConfig_t, hostCftMode, 108)
TUTTI_FIELD(ncclConfig_t, nvlsHostMode, 112)
constexpr bool are_undefined(std::initializer_list<int> fields) {
  for (const int field : fields) {
    if (field != NCCL_CONFIG_UNDEF_INT) return false;
  }
  return true;
}
static_assert(are_undefined({kConfig.blocking,
                             kConfig.cgaClusterSize,
                             kConfig.minCTAs,
                             kConfig.maxCTAs,
                             kConfig.splitShare,
                             kConfig.trafficClass,
                             kConfig.collnetEnable,
                             kConfig.CTAPolicy,
                             kConfig.shrinkShare,
                             kConfig.nvlsCTAs,
                             kConfig.nChannelsPerNetPeer,
                             kConfig.nvlinkCentricSched,
                             kConfig.graphUsageMode,
                             kConfig.numRmaCtx,
                             kConfig.maxP2pPeers,
                             kConfig.graphStreamOrdering,
                             kConfig.launchOrderImplicit,
                             kConfig.numRmaSig,
                             kConfig.rmaEagerInit,
                             kConfig.hostCftMode,
                             kConfig.nvlsHostMode}));

static_assert(sizeof(ncclConfigExt_t) == 24);
TUTTI_FIELD(ncclConfigExt_t, next, 0)
TUTTI_FIELD(ncclConfigExt_t, key.vendorId, 8)
TUTTI_FIELD(ncclConfigExt_t, key.optionId, 12)
TUTTI_FIELD(ncclConfigExt_t, val, 16)

static_assert(sizeof(ncclCollConfig_t) == 72);
TUTTI_FIELD(ncclCollConfig_t, size, 0)
TUTTI_FIELD(ncclCollConfig_t, magic, 8)
TUTTI_FIELD(ncclCollConfig_t, version, 12)
TUTTI_FIELD(ncclCollConfig_t, ext, 16)
TUTTI_FIELD(ncclCollConfig_t, minCTAs, 24)
TUTTI_FIELD(ncclCollConfig_t, maxCTAs, 28)
TUTTI_FIELD(ncclCollConfig_t, nvlsCTAs, 32)
TUTTI_FIELD(ncclCollConfig_t, cgaClusterSize, 36)
TUTTI_FIELD(ncclCollConfig_t, algSelection, 40)
TUTTI_FIELD(ncclCollConfig_t, forceAlgSelection, 48)
TUTTI_FIELD(ncclCollConfig_t, CTAPolicy, 52)
TUTTI_FIELD(ncclCollConfig_t, userProfilerTag, 56)
TUTTI_FIELD(ncclCollConfig_t, launchCompletionEvent, 64)
constexpr ncclCollConfig_t kCollConfig = NCCL_COLLCONFIG_INITIALIZER;
static_assert(kCollConfig.size == 72 && kCollConfig.magic == 0xcafebeef &&
              kCollConfig.version == 23203 && kCollConfig.ext == nullptr &&
              kCollConfig.algSelection == nullptr && kCollConfig.forceAlgSelection == 1 &&
              kCollConfig.userProfilerTag == 0 && kCollConfig.launchCompletionEvent == nullptr);
static_assert(are_undefined({kCollConfig.minCTAs, kCollConfig.maxCTAs, kCollConfig.nvlsCTAs,
                             kCollConfig.cgaClusterSize, kCollConfig.CTAPolicy}));

static_assert(sizeof(ncclWaitSignalDesc_t) == 16);
TUTTI_FIELD(ncclWaitSignalDesc_t, opCnt, 0)
TUTTI_FIELD(ncclWaitSignalDesc_t, peer, 4)
TUTTI_FIELD(ncclWaitSignalDesc_t, sigIdx, 8)
TUTTI_FIELD(ncclWaitSignalDesc_t, ctx, 12)

static_assert(sizeof(ncclEncryptionConfig_t) == 32);
TUTTI_FIELD(ncclEncryptionConfig_t, size, 0)
TUTTI_FIELD(ncclEncryptionConfig_t, magic, 8)
TUTTI_FIELD(ncclEncryptionConfig_t, version, 12)
TUTTI_FIELD(ncclEncryptionConfig_t, mode, 16)
TUTTI_FIELD(ncclEncryptionConfig_t, psk, 24)
constexpr ncclEncryptionConfig_t kEncryption = NCCL_ENCRYPTION_CONFIG_INITIALIZER;
static_assert(kEncryption.size == 32 && kEncryption.magic == 0xcafebeef &&
              kEncryption.version == 23203 && kEncryption.mode == NCCL_ENCRYPTION_MODE_NONE &&
              kEncryption.psk == nullptr);

static_assert(sizeof(ncclMultimemHandle_t) == 8);
static_assert(sizeof(ncclCommProperties_t) == 152);
TUTTI_FIELD(ncclCommProperties_t, size, 0)
TUTTI_FIELD(ncclCommProperties_t, magic, 8)
TUTTI_FIELD(ncclCommProperties_t, version, 12)
TUTTI_FIELD(ncclCommProperties_t, rank, 16)
TUTTI_FIELD(ncclCommProperties_t, nRanks, 20)
TUTTI_FIELD(ncclCommProperties_t, cudaDev, 24)
TUTTI_FIELD(ncclCommProperties_t, nvmlDev, 28)
TUTTI_FIELD(ncclCommProperties_t, deviceApiSupport, 32)
TUTTI_FIELD(ncclCommProperties_t, multimemSupport, 33)
TUTTI_FIELD(ncclCommProperties_t, ginType, 36)
TUTTI_FIELD(ncclCommProperties_t, nLsaTeams, 40)
TUTTI_FIELD(ncclCommProperties_t, hostRmaSupport, 44)
TUTTI_FIELD(ncclCommProperties_t, railedGinType, 48)
TUTTI_FIELD(ncclCommProperties_t, commHash, 56)
TUTTI_FIELD(ncclCommProperties_t, ginMinStride, 64)
TUTTI_FIELD(ncclCommProperties_t, ginConnectionType, 68)
TUTTI_FIELD(ncclCommProperties_t, ginSupport, 72)
TUTTI_FIELD(ncclCommProperties_t, devCommRuntimeVersionSize, 136)
TUTTI_FIELD(ncclCommProperties_t, cftSupport, 144)
TUTTI_FIELD(ncclCommProperties_t, cftMulticastSupport, 145)
TUTTI_FIELD(ncclCommProperties_t, cftCountedSupport, 146)
constexpr ncclCommProperties_t kProperties = NCCL_COMM_PROPERTIES_INITIALIZER;
static_assert(kProperties.size == sizeof(ncclCommProperties_t) && kProperties.magic == 0xcafebeef &&
              kProperties.version == 23203);

TUTTI_VALUE(ncclTimeout, 8)
TUTTI_VALUE(NCCL_API_MAGIC, 0xcafebeef)
TUTTI_VALUE(NCCL_WIN_STRICT_ORDERING, 2)
TUTTI_VALUE(NCCL_WIN_GIN_ONLY, 4)
TUTTI_VALUE(NCCL_WIN_CFT_COUNTED, 8)
TUTTI_VALUE(NCCL_SUSPEND_MEM, 1)
TUTTI_VALUE(ncclHostCftDefault, NCCL_CONFIG_UNDEF_INT)
TUTTI_VALUE(ncclHostCftEnable, 1)
TUTTI_VALUE(ncclHostCftDisable, 2)
TUTTI_VALUE(ncclHostCftFallback, 3)
TUTTI_VALUE(ncclNvlsHostModeDefault, NCCL_CONFIG_UNDEF_INT)
TUTTI_VALUE(ncclNvlsHostModeEnable, 0)
TUTTI_VALUE(ncclNvlsHostModeDisableTransport, 1)
TUTTI_VALUE(ncclNvlsHostModeDisableSymmetricMultimem, 2)
TUTTI_VALUE(ncclNvlsHostModeDisable, INT_MAX)
TUTTI_VALUE(ncclStatGpuMemSuspend, 0)
TUTTI_VALUE(ncclStatGpuMemSuspended, 1)
TUTTI_VALUE(ncclStatGpuMemPersist, 2)
TUTTI_VALUE(ncclStatGpuMemTotal, 3)
TUTTI_VALUE(NCCL_ENCRYPTION_MODE_NONE, 0)
TUTTI_VALUE(NCCL_ENCRYPTION_MODE_PSK, 1)
TUTTI_VALUE(NCCL_GIN_CONNECTION_NONE, 0)
TUTTI_VALUE(NCCL_GIN_CONNECTION_FULL, 1)
TUTTI_VALUE(NCCL_GIN_CONNECTION_RAIL, 2)
TUTTI_VALUE(NCCL_GIN_CONNECTION_CUSTOM_STRIDE, 3)
TUTTI_VALUE(NCCL_GIN_TYPE_NONE, 0)
TUTTI_VALUE(NCCL_GIN_TYPE_PROXY, 2)
TUTTI_VALUE(NCCL_GIN_TYPE_GDAKI, 3)
TUTTI_VALUE(NCCL_GIN_TYPE_GPI, 4)
TUTTI_VALUE(NCCL_GIN_TYPE_EFA_GDA, 5)
TUTTI_VALUE(NCCL_GIN_MAX_TYPES, 6)
TUTTI_VALUE(NCCL_CFT_TEAM_FLAT, 0)
TUTTI_VALUE(NCCL_CFT_TEAM_HIER_MULTIMEM, 1)
TUTTI_VALUE(NCCL_CFT_TEAM_HIER_LSA, 2)

TUTTI_SIGNATURE(ncclAllGatherConfig,
                ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, ncclComm_t,
                                 cudaStream_t, const ncclCollConfig_t*))
TUTTI_SIGNATURE(ncclAllReduceConfig,
                ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t,
                                 ncclComm_t, cudaStream_t, const ncclCollConfig_t*))
TUTTI_SIGNATURE(ncclAlltoAllConfig,
                ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, ncclComm_t,
                                 cudaStream_t, const ncclCollConfig_t*))
TUTTI_SIGNATURE(ncclBroadcastConfig,
                ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t,
                                 cudaStream_t, const ncclCollConfig_t*))
TUTTI_SIGNATURE(ncclCommGetUniqueId, ncclResult_t (*)(ncclComm_t, ncclUniqueId*))
TUTTI_SIGNATURE(ncclCommGrow, ncclResult_t (*)(ncclComm_t, int, const ncclUniqueId*, int,
                                               ncclComm_t*, ncclConfig_t*))
TUTTI_SIGNATURE(ncclCommMemStats, ncclResult_t (*)(ncclComm_t, ncclCommMemStat_t, uint64_t*))
TUTTI_DEVICE_SIGNATURE(ncclCommQueryProperties, ncclResult_t (*)(ncclComm_t, ncclCommProperties_t*))
TUTTI_SIGNATURE(ncclCommResume, ncclResult_t (*)(ncclComm_t))
TUTTI_SIGNATURE(ncclCommSuspend, ncclResult_t (*)(ncclComm_t, int))
TUTTI_SIGNATURE(ncclGatherConfig,
                ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t,
                                 cudaStream_t, const ncclCollConfig_t*))
TUTTI_DEVICE_SIGNATURE(ncclGetCftDeviceLeInfo, ncclResult_t (*)(ncclWindow_t, size_t, int,
                                                                ncclTeam_t, ncclCftLeId*, size_t*))
TUTTI_DEVICE_SIGNATURE(ncclGetLsaDevicePointer, ncclResult_t (*)(ncclWindow_t, size_t, int, void**))
TUTTI_DEVICE_SIGNATURE(ncclGetLsaMultimemDevicePointer,
                       ncclResult_t (*)(ncclWindow_t, size_t, void**))
TUTTI_DEVICE_SIGNATURE(ncclGetMultimemDeviceLeInfo,
                       ncclResult_t (*)(ncclWindow_t, size_t, ncclCftLeId*, size_t*))
TUTTI_DEVICE_SIGNATURE(ncclGetMultimemDevicePointer,
                       ncclResult_t (*)(ncclWindow_t, size_t, ncclMultimemHandle_t, void**))
TUTTI_DEVICE_SIGNATURE(ncclGetPeerDeviceLeInfo,
                       ncclResult_t (*)(ncclWindow_t, size_t, int, ncclCftLeId*, size_t*))
TUTTI_DEVICE_SIGNATURE(ncclGetPeerDevicePointer,
                       ncclResult_t (*)(ncclWindow_t, size_t, int, void**))
TUTTI_SIGNATURE(ncclParamBind, ncclResult_t (*)(ncclParamHandle_t*, const char*))
TUTTI_SIGNATURE(ncclParamDumpAll, void (*)())
TUTTI_SIGNATURE(ncclParamGet, ncclResult_t (*)(ncclParamHandle_t, void*, int, int*))
TUTTI_SIGNATURE(ncclParamGetAllParameterKeys, ncclResult_t (*)(const char***, int*))
TUTTI_SIGNATURE(ncclParamGetI16, ncclResult_t (*)(ncclParamHandle_t, int16_t*))
TUTTI_SIGNATURE(ncclParamGetI32, ncclResult_t (*)(ncclParamHandle_t, int32_t*))
TUTTI_SIGNATURE(ncclParamGetI64, ncclResult_t (*)(ncclParamHandle_t, int64_t*))
TUTTI_SIGNATURE(ncclParamGetI8, ncclResult_t (*)(ncclParamHandle_t, int8_t*))
TUTTI_SIGNATURE(ncclParamGetParameter, ncclResult_t (*)(const char*, const char**, int*))
TUTTI_SIGNATURE(ncclParamGetStr, ncclResult_t (*)(ncclParamHandle_t, const char**))
TUTTI_SIGNATURE(ncclParamGetU16, ncclResult_t (*)(ncclParamHandle_t, uint16_t*))
TUTTI_SIGNATURE(ncclParamGetU32, ncclResult_t (*)(ncclParamHandle_t, uint32_t*))
TUTTI_SIGNATURE(ncclParamGetU64, ncclResult_t (*)(ncclParamHandle_t, uint64_t*))
TUTTI_SIGNATURE(ncclParamGetU8, ncclResult_t (*)(ncclParamHandle_t, uint8_t*))
TUTTI_SIGNATURE(ncclPutSignal,
                ncclResult_t (*)(const void*, size_t, ncclDataType_t, int, ncclWindow_t, size_t,
                                 int, int, unsigned int, ncclComm_t, cudaStream_t))
TUTTI_SIGNATURE(ncclReduceConfig,
                ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, int,
                                 ncclComm_t, cudaStream_t, const ncclCollConfig_t*))
TUTTI_SIGNATURE(ncclReduceScatterConfig,
                ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t,
                                 ncclComm_t, cudaStream_t, const ncclCollConfig_t*))
TUTTI_SIGNATURE(ncclScatterConfig,
                ncclResult_t (*)(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t,
                                 cudaStream_t, const ncclCollConfig_t*))
TUTTI_SIGNATURE(ncclSetEncryption, ncclResult_t (*)(const ncclEncryptionConfig_t*))
TUTTI_SIGNATURE(ncclSignal, ncclResult_t (*)(int, int, int, unsigned int, ncclComm_t, cudaStream_t))
TUTTI_DEVICE_SIGNATURE(ncclTeamCft, ncclTeam_t (*)(ncclComm_t, ncclCftTeamMode_t))
TUTTI_DEVICE_SIGNATURE(ncclTeamCftMultimem, ncclTeam_t (*)(ncclComm_t))
TUTTI_SIGNATURE(ncclWaitSignal,
                ncclResult_t (*)(int, ncclWaitSignalDesc_t*, ncclComm_t, cudaStream_t))
TUTTI_SIGNATURE(ncclWinGetUserPtr, ncclResult_t (*)(ncclComm_t, ncclWindow_t, void**))

#endif  // 2.32.3
