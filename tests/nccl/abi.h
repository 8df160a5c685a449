// The binary interface of NCCL 2.28.9, as compile-time checks. Included after an nccl.h and
// nccl_device.h: once after ours, once after NVIDIA's where there is one, so that both agree with
// this and so with each other.
#include <cstddef>
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

static_assert(sizeof(ncclConfig_t) == 80);
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
static_assert(kConfig.size == 80 && kConfig.magic == 0xcafebeef && kConfig.version == 22809);
static_assert(kConfig.blocking == NCCL_CONFIG_UNDEF_INT && kConfig.netName == nullptr);
static_assert(kConfig.commName == nullptr && kConfig.nvlinkCentricSched == NCCL_CONFIG_UNDEF_INT);
constexpr ncclSimInfo_t kSimInfo = NCCL_SIM_INFO_INITIALIZER;
static_assert(kSimInfo.size == 24 && kSimInfo.magic == 0x74685283 && kSimInfo.version == 22809);

TUTTI_VALUE(NCCL_VERSION_CODE, 22809)
TUTTI_VALUE(NCCL_MAJOR, 2)
TUTTI_VALUE(NCCL_MINOR, 28)
TUTTI_VALUE(NCCL_PATCH, 9)
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
TUTTI_VALUE(ncclNumResults, 8)
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
TUTTI_SIGNATURE(ncclResetDebugInit, void (*)())
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
