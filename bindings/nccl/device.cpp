// The host side of NCCL's device interface. There is no device here: what describes ranks answers,
// what would make something for device code is refused.
#include "bindings/nccl/comm.h"
#include "bindings/nccl/export.h"
#include "bindings/nccl/nccl_device.h"
#include "bindings/nccl/result.h"

namespace tutti::nccl {
namespace {

ncclResult_t no_device(std::string_view function) {
  return guarded(function, []() -> ncclResult_t {
    refuse_usage(
        "communication inside CUDA kernels is not supported by Tutti; use the collectives of "
        "nccl.h");
  });
}

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

NCCL_API(ncclResult_t, ncclDevCommCreate,
         (ncclComm_t, ncclDevCommRequirements_t const*, ncclDevComm_t*)) {
  return no_device("ncclDevCommCreate");
}
NCCL_API(ncclResult_t, ncclDevCommDestroy, (ncclComm_t, ncclDevComm_t const*)) {
  return no_device("ncclDevCommDestroy");
}
NCCL_API(ncclResult_t, ncclLsaBarrierCreateRequirement,
         (ncclTeam_t, int, ncclLsaBarrierHandle_t*, ncclDevResourceRequirements_t*)) {
  return no_device("ncclLsaBarrierCreateRequirement");
}
NCCL_API(ncclResult_t, ncclGinBarrierCreateRequirement,
         (ncclComm_t, ncclTeam_t, int, ncclGinBarrierHandle_t*, ncclDevResourceRequirements_t*)) {
  return no_device("ncclGinBarrierCreateRequirement");
}
NCCL_API(ncclResult_t, ncclLLA2ACreateRequirement,
         (int, int, ncclLLA2AHandle_t*, ncclDevResourceRequirements_t*)) {
  return no_device("ncclLLA2ACreateRequirement");
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
// The ranks whose device memory this one can address: itself.
NCCL_API(ncclTeam_t, ncclTeamLsa, (ncclComm_t comm)) {
  return team("ncclTeamLsa", comm, [](const ncclComm&) { return ncclTeam_t{1, 0, 1}; });
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
