#include "bindings/nccl/comm.h"

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "bindings/nccl/result.h"
#include "bindings/nccl/windows.h"
#include "comm/impl.h"
#include "core/wait.h"

namespace tutti::nccl {
namespace {

// This many destroyed handles are kept before the oldest is used again, for stale ones to be
// noticed.
constexpr std::size_t kKept = 256;

struct Handles {
  std::mutex mutex;
  std::deque<ncclComm> all;
  std::deque<ncclComm*> free;
};

Handles& handles() {
  static auto* instance = new Handles;  // never destroyed: threads may use handles during exit
  return *instance;
}

[[noreturn]] void refuse_gone() {
  refuse_usage("another thread destroyed or aborted the communicator meanwhile");
}

RankGroup& group_of(ncclComm& comm) { return *comm.communicator.impl().group; }

}  // namespace

ncclComm* new_handle(const Config& config, int rank, int size, int device) {
  ncclComm* comm = nullptr;
  {
    Handles& h = handles();
    const std::lock_guard lock(h.mutex);
    if (h.free.size() > kKept) {
      comm = h.free.front();
      h.free.pop_front();
    } else {
      comm = &h.all.emplace_back();
    }
  }
  comm->config = config;
  comm->rank = rank;
  comm->size = size;
  comm->device = device;
  comm->async.store(ncclSuccess, std::memory_order_relaxed);
  comm->revoked.store(false, std::memory_order_relaxed);
  comm->finalized.store(false, std::memory_order_relaxed);
  comm->suspended.store(false, std::memory_order_relaxed);
  comm->phase.store(Phase::opening, std::memory_order_relaxed);
  // release: a thread that sees it live sees the above.
  comm->live.store(true, std::memory_order_release);
  return comm;
}

void free_handle(ncclComm& comm) {
  comm.live.store(false);
  wait_for_users(comm);
  comm.communicator = Communicator();
  {
    const std::lock_guard lock(comm.mutex);
    comm.operators.clear();
    comm.registrations.clear();
    comm.id_to_grow.reset();
  }
  forget_windows(comm);
  comm.signals.reset();
  Handles& h = handles();
  const std::lock_guard lock(h.mutex);
  h.free.push_back(&comm);
}

void wait_for_users(const ncclComm& comm) {
  wait_until(
      Deadline::max(), [&] { return comm.users.load() == 0; }, OnStop::goes_on);
}

void destroy(ncclComm& comm) {
  wait_for_users(comm);  // they may be aborted until then
  if (!comm.live.exchange(false)) refuse_gone();
  free_handle(comm);
}

ncclComm& checked(ncclComm_t comm) {
  require(comm, "comm");
  if (!comm->live.load(std::memory_order_acquire)) {
    refuse_argument("the communicator has been destroyed or aborted, or never was one");
  }
  return *comm;
}

ncclComm& made(ncclComm_t handle) {
  ncclComm& comm = checked(handle);
  if (comm.phase.load(std::memory_order_acquire) == Phase::opening ||
      comm.async.load(std::memory_order_acquire) == ncclInProgress) {
    refuse_argument(
        "the communicator is still busy with an earlier call: wait until ncclCommGetAsyncError "
        "says "
        "ncclSuccess (after ncclGroupEnd, if a group is open)");
  }
  if (!comm.communicator)
    refuse_usage("the communicator was never made: its initialisation failed");
  return comm;
}

ncclComm& kept(ncclComm_t handle) {
  ncclComm& comm = made(handle);
  if (comm.revoked.load(std::memory_order_relaxed)) refuse_usage("communicator was revoked");
  if (comm.finalized.load(std::memory_order_relaxed)) {
    refuse_usage(
        "the communicator was finalized; only ncclCommDestroy and ncclCommAbort may follow");
  }
  return comm;
}

void refuse_suspended(const ncclComm& comm) {
  if (comm.suspended.load(std::memory_order_relaxed)) {
    refuse_usage("the communicator is suspended: call ncclCommResume first");
  }
}

ncclComm& usable(ncclComm_t handle) {
  ncclComm& comm = kept(handle);
  refuse_suspended(comm);
  return comm;
}

Use::Use(ncclComm& comm) : comm_(comm) {
  comm_.users.fetch_add(1);
  if (comm_.live.load()) return;
  comm_.users.fetch_sub(1);
  refuse_gone();
}

ncclResult_t async_result(ncclComm& comm) {
  if (comm.phase.load(std::memory_order_acquire) == Phase::opening) return ncclInProgress;
  const ncclResult_t result = comm.async.load(std::memory_order_acquire);
  if (result != ncclSuccess || !comm.communicator) return result;
  if (comm.revoked.load(std::memory_order_acquire)) return result;  // its failure is known
  const std::optional<Error> error = comm.communicator.error();
  return error ? result_of(*error, comm.rank) : result;
}

std::string failure_text(ncclComm& comm) {
  if (comm.phase.load(std::memory_order_acquire) != Phase::ready || !comm.communicator ||
      !group_of(comm).liveness().failed()) {
    return "";
  }
  return group_of(comm).liveness().failure().text;
}

}  // namespace tutti::nccl
