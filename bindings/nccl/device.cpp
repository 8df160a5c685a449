// The host side of NCCL's device interface. There is no device here: functions that describe ranks
// answer; functions that would make something for device code refuse.
#include <algorithm>
#include <cstddef>
#include <cstring>

#include "bindings/nccl/comm.h"
#include "bindings/nccl/export.h"
#include "bindings/nccl/nccl_device.h"
#include "bindings/nccl/result.h"
#include "comm/impl.h"

namespace tutti::nccl {
namespace {

/// A team; of no ranks, with the reason in ncclGetLastError(), where `comm` is none.
template <class Make>
ncclTeam_t team(std::string_view function, ncclComm_t comm, Make&& make) {
  ncclTeam_t result{0, 0, 1};
  guarded(function, [&] {
    result = make(made(comm));
    return ncclSuccess;
  });
  return result;
}

}  // namespace
}  // namespace tutti::nccl

using namespace tutti::nccl;

// A caller with an older header has a shorter struct.
NCCL_API(ncclResult_t, ncclCommQueryProperties, (ncclComm_t comm, ncclCommProperties_t* props)) {
  return guarded("ncclCommQueryProperties", [&] {
    const ncclComm& c = made(comm);
    require(props, "props");
    constexpr std::size_t kHead = offsetof(ncclCommProperties_t, rank);
    if (props->magic != NCCL_API_MAGIC || props->size < kHead) {
      refuse_usage(
          "the ncclCommProperties_t was not initialised with NCCL_COMM_PROPERTIES_INITIALIZER");
    }
    ncclCommProperties_t answer{};  // a property that is not set here is not supported
    answer.rank = c.rank;
    answer.nRanks = c.size;
    answer.cudaDev = c.device;
    answer.nvmlDev = -1;  // not known
    answer.nLsaTeams = c.size;
    answer.hostRmaSupport = true;
    answer.commHash = c.communicator.impl().group->key(0);
    const std::size_t bytes = std::min(props->size, sizeof answer) - kHead;
    std::memcpy(&props->rank, &answer.rank, bytes);
    return ncclSuccess;
  });
}

NCCL_API(ncclResult_t, ncclDevCommCreate,
         (ncclComm_t, ncclDevCommRequirements_t const*, ncclDevComm_t*)) {
  return refused("ncclDevCommCreate");
}
NCCL_API(ncclResult_t, ncclDevCommDestroy, (ncclComm_t, ncclDevComm_t const*)) {
  return refused("ncclDevCommDestroy");
}
NCCL_API(ncclResult_t, ncclLsaBarrierCreateRequirement,
         (ncclTeam_t, int, ncclLsaBarrierHandle_t*, ncclDevResourceRequirements_t*)) {
  return refused("ncclLsaBarrierCreateRequirement");
}
NCCL_API(ncclResult_t, ncclGinBarrierCreateRequirement,
         (ncclComm_t, ncclTeam_t, int, ncclGinBarrierHandle_t*, ncclDevResourceRequirements_t*)) {
  return refused("ncclGinBarrierCreateRequirement");
}
NCCL_API(ncclResult_t, ncclLLA2ACreateRequirement,
         (int, int, ncclLLA2AHandle_t*, ncclDevResourceRequirements_t*)) {
  return refused("ncclLLA2ACreateRequirement");
}
NCCL_API(ncclResult_t, ncclGinOutboxCreateRequirement,
         (int, int, ncclGinOutboxHandle_t*, ncclDevResourceRequirements_t*)) {
  return refused("ncclGinOutboxCreateRequirement");
}
NCCL_API(ncclResult_t, ncclGinInboxA2ACreateRequirement,
         (ncclTeam_t, int, int, ncclGinInboxA2AHandle_t*, ncclDevResourceRequirements_t*)) {
  return refused("ncclGinInboxA2ACreateRequirement");
}
// Slots of 8 bytes.
NCCL_API(int, ncclLLA2ACalcSlots, (int maxElts, int maxEltSize)) {
  return maxElts * ((maxEltSize + 7) / 8);
}

NCCL_API(ncclTeam_t, ncclTeamWorld, (ncclComm_t comm)) {
  return team("ncclTeamWorld", comm, [](const ncclComm& c) {
    return ncclTeam_t{c.size, c.rank, 1};
  });
}
// The ranks with device memory that this one can address: itself.
NCCL_API(ncclTeam_t, ncclTeamLsa, (ncclComm_t comm)) {
  return team("ncclTeamLsa", comm, [](const ncclComm&) { return ncclTeam_t{1, 0, 1}; });
}
// By whatever fabric.
NCCL_API(ncclTeam_t, ncclTeamCft, (ncclComm_t comm, ncclCftTeamMode_t)) {
  return team("ncclTeamCft", comm, [](const ncclComm&) { return ncclTeam_t{1, 0, 1}; });
}
NCCL_API(ncclTeam_t, ncclTeamCftMultimem, (ncclComm_t comm)) {
  return team("ncclTeamCftMultimem", comm, [](const ncclComm&) { return ncclTeam_t{1, 0, 1}; });
}
// The ranks with the same place in their own ncclTeamLsa: all.
NCCL_API(ncclTeam_t, ncclTeamRail, (ncclComm_t comm)) {
  return team("ncclTeamRail", comm, [](const ncclComm& c) {
    return ncclTeam_t{c.size, c.rank, 1};
  });
}

// A team is an arithmetic sequence of ranks that contains the caller. -1: `comm` is none.
NCCL_API(int, ncclTeamRankToWorld, (ncclComm_t comm, ncclTeam_t of, int rank)) {
  int result = -1;
  guarded("ncclTeamRankToWorld", [&] {
    result = made(comm).rank + (rank - of.rank) * of.stride;
    return ncclSuccess;
  });
  return result;
}
NCCL_API(int, ncclTeamRankToLsa, (ncclComm_t comm, ncclTeam_t of, int rank)) {
  int result = -1;
  guarded("ncclTeamRankToLsa", [&] {
    made(comm);
    result = (rank - of.rank) * of.stride;
    return ncclSuccess;
  });
  return result;
}
