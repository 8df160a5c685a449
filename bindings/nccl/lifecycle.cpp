// What becomes of communicators: how they end, and what is made from them; see grow.cpp, too.
#include "bindings/nccl/lifecycle.h"

#include <fmt/format.h>

#include <span>
#include <utility>
#include <vector>

#include "bindings/nccl/export.h"
#include "comm/device_call.h"
#include "comm/impl.h"

namespace tutti::nccl {
namespace {

void fail_all(ncclComm& comm, std::string_view function) {
  comm.communicator.abort(fmt::format("{} was called", function));
}

/// Makes calls that other threads are in return, kernels leave their waits, and all ranks' later
/// calls fail; returns when nothing of this rank is under way any more.
void stop(ncclComm& comm, std::string_view function) {
  fail_all(comm, function);
  wait_for_users(comm);
  wait_on_device(*comm.communicator.impl().group);
}

}  // namespace

Communicator renewed_if_stopped(ncclComm& comm, const Options& options) {
  if (!comm.communicator.impl().group->liveness().failed()) return {};
  return comm.communicator.shrink({}, options);
}

ncclResult_t open_child(std::string_view function, ncclComm& parent, ncclComm_t* out, bool member,
                        int rank, int size, const Config& config,
                        std::function<Communicator()> open) {
  Opening opening;
  opening.parent = &parent;
  opening.out = out;
  opening.open = std::move(open);
  if (member) opening.child = *out = new_handle(config, rank, size, parent.device);
  return submit(function, std::move(opening), config.blocking);
}

}  // namespace tutti::nccl

using namespace tutti::nccl;

// Every operation is over when its call returns, so there is nothing to flush.
NCCL_API(ncclResult_t, ncclCommFinalize, (ncclComm_t comm)) {
  return guarded_in_group("ncclCommFinalize", [&] {
    ncclComm& c = made(comm);
    if (c.revoked) refuse_usage("communicator was revoked");
    if (c.finalized.exchange(true)) refuse_argument("the communicator was finalized before");
    return ncclSuccess;
  });
}

NCCL_API(ncclResult_t, ncclCommDestroy, (ncclComm_t comm)) {
  if (comm == nullptr) return ncclSuccess;
  return guarded_in_group("ncclCommDestroy", [&] {
    ncclComm& c = checked(comm);
    if (async_result(c) == ncclInProgress) made(comm);  // says why not
    return submit_destruction("ncclCommDestroy", c);
  });
}

NCCL_API(ncclResult_t, ncclCommAbort, (ncclComm_t comm)) {
  if (comm == nullptr) return ncclSuccess;
  return guarded("ncclCommAbort", [&] {
    ncclComm& c = checked(comm);
    Phase expected = Phase::opening;
    if (c.phase.compare_exchange_strong(expected, Phase::abandoned)) {
      c.live = false;  // the thread that is making it frees it
      return ncclSuccess;
    }
    // A rank that is in no operation just leaves: others may be finishing what it has finished, and
    // a rank that waits for it notices. On a GPU it may be in one after its call has returned.
    if (c.users > 0) {
      stop(c, "ncclCommAbort");
    } else if (c.communicator && is_running_on_device(*c.communicator.impl().group)) {
      fail_all(c, "ncclCommAbort");
    }
    destroy(c);
    return ncclSuccess;
  });
}

// The communicator is as its ranks left it, and at rest: ncclCommGetAsyncError says ncclSuccess.
NCCL_API(ncclResult_t, ncclCommRevoke, (ncclComm_t comm, int revokeFlags)) {
  return guarded_in_group("ncclCommRevoke", [&] {
    if (revokeFlags != NCCL_REVOKE_DEFAULT) {
      refuse_argument(
          fmt::format("revokeFlags is {}, but must be NCCL_REVOKE_DEFAULT", revokeFlags));
    }
    ncclComm& c = checked(comm);
    if (c.phase == Phase::opening || !c.communicator) made(comm);  // says why not
    if (c.finalized) refuse_usage("the communicator was finalized");
    if (c.revoked.exchange(true)) refuse_usage("communicator was revoked before");
    stop(c, "ncclCommRevoke");
    // The stopped call has returned, and has told its result.
    c.async.store(ncclSuccess, std::memory_order_release);
    return ncclSuccess;
  });
}

NCCL_API(ncclResult_t, ncclCommSplit,
         (ncclComm_t comm, int color, int key, ncclComm_t* newcomm, ncclConfig_t* config)) {
  constexpr std::string_view kName = "ncclCommSplit";
  return guarded_in_group(kName, [&] {
    ncclComm& parent = made(comm);
    if (parent.finalized) refuse_usage("the communicator was finalized");
    refuse_suspended(parent);
    require(newcomm, "newcomm");
    *newcomm = nullptr;
    if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
      refuse_argument(
          fmt::format("color is {}, but must be 0 or more, or NCCL_SPLIT_NOCOLOR", color));
    }
    const Config child_config = parse_config(config, parent.config);
    const tutti::Options options = options_for(child_config);
    // The new rank and size are not known before the ranks have talked.
    return open_child(kName, parent, newcomm, color >= 0, -1, -1, child_config,
                      [&parent, color, key, options, newcomm] {
                        const Use held(parent);
                        tutti::Communicator renewed = renewed_if_stopped(parent, options);
                        tutti::Communicator& whole = renewed ? renewed : parent.communicator;
                        tutti::Communicator child = whole.split(color, key, options);
                        if (child) {
                          (*newcomm)->rank = child.rank();
                          (*newcomm)->size = child.size();
                        }
                        return child;
                      });
  });
}

NCCL_API(ncclResult_t, ncclCommShrink,
         (ncclComm_t comm, int* excludeRanksList, int excludeRanksCount, ncclComm_t* newcomm,
          ncclConfig_t* config, int shrinkFlags)) {
  constexpr std::string_view kName = "ncclCommShrink";
  return guarded_in_group(kName, [&] {
    ncclComm& parent = checked(comm);
    if (shrinkFlags != NCCL_SHRINK_DEFAULT && shrinkFlags != NCCL_SHRINK_ABORT) {
      refuse_argument(fmt::format(
          "shrinkFlags is {}; NCCL_SHRINK_DEFAULT and NCCL_SHRINK_ABORT are known", shrinkFlags));
    }
    const bool stops = shrinkFlags == NCCL_SHRINK_ABORT;
    // NCCL_SHRINK_ABORT is there for communicators with something in progress.
    if (!stops || parent.phase == Phase::opening || !parent.communicator) made(comm);
    require(newcomm, "newcomm");
    *newcomm = nullptr;
    if (excludeRanksCount < 1) {
      refuse_argument(
          fmt::format("excludeRanksCount is {}, but must be at least 1", excludeRanksCount));
    }
    require(excludeRanksList, "excludeRanksList");
    const std::vector<int> excluded(excludeRanksList, excludeRanksList + excludeRanksCount);
    std::vector<bool> stays(static_cast<std::size_t>(parent.size), true);
    for (const int rank : excluded) {
      if (rank < 0 || rank >= parent.size) {
        refuse_argument(
            fmt::format("rank {} is excluded, but ranks are 0 to {}", rank, parent.size - 1));
      }
      stays[static_cast<std::size_t>(rank)] = false;
    }
    int rank = 0, size = 0;
    for (int r = 0; r < parent.size; ++r) {
      if (r == parent.rank) rank = size;
      size += stays[static_cast<std::size_t>(r)] ? 1 : 0;
    }
    if (!stays[static_cast<std::size_t>(parent.rank)]) {
      refuse_argument(
          fmt::format("rank {} is excluded, so it must not call ncclCommShrink", parent.rank));
    }
    if (stops) stop(parent, kName);
    const Config child_config = parse_config(config, parent.config);
    const tutti::Options options = options_for(child_config);
    return open_child(kName, parent, newcomm, true, rank, size, child_config,
                      [&parent, excluded, options] {
                        const Use held(parent);
                        return parent.communicator.shrink(excluded, options);
                      });
  });
}
