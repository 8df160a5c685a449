// ncclGroupStart() to ncclGroupEnd(): keeps the calls of a thread in between, and runs them
// together. A call outside of a group is a group of one.
#pragma once

#include <atomic>
#include <functional>
#include <string_view>
#include <utility>

#include "bindings/nccl/comm.h"
#include "bindings/nccl/execute.h"
#include "bindings/nccl/result.h"

namespace tutti::nccl {

/// A communicator that the group will make.
struct Opening {
  ncclComm* parent = nullptr;  // of a split or shrink; those of one parent keep their order
  ncclComm* child = nullptr;   // null: the rank takes part, but is not a member
  ncclComm_t* out = nullptr;   // set to NULL if it fails, unless the communicator is nonblocking
  std::function<Communicator()> open;
};

/// Keep the call (in a group) or carry it out now. On a nonblocking communicator: start it, and
/// return ncclInProgress. Errors name `function`.
ncclResult_t submit(std::string_view function, Opening opening, bool blocking);
ncclResult_t submit(std::string_view function, Task&& task);
/// Whether submit() would carry out an operation of `comm` on this thread, now; and the same for a
/// call that is_simple(), for which no Task need be made.
bool runs_at_once(const ncclComm& comm);
ncclResult_t run_at_once(std::string_view function, ncclComm& comm, const Call& call);
/// ncclCommDestroy: after everything else in the group.
ncclResult_t submit_destruction(std::string_view function, ncclComm& comm);

/// On how many threads a group is open: every call asks, and this is cheaper to read than what a
/// thread has of its own.
extern std::atomic<int> threads_in_groups;
/// False: on this thread none is.
inline bool group_may_be_open() {
  // relaxed: of this thread's groups it has seen its own writes.
  return threads_in_groups.load(std::memory_order_relaxed) > 0;
}
/// Makes `result` the group's, if one is open and it has no failure yet.
ncclResult_t note_in_open_group(ncclResult_t result) noexcept;
inline ncclResult_t note_in_group(ncclResult_t result) noexcept {
  return group_may_be_open() ? note_in_open_group(result) : result;
}
/// guarded(), for functions that may stand in a group: their errors fail the group.
template <class Body>
ncclResult_t guarded_in_group(std::string_view function, Body&& body) noexcept {
  return note_in_group(guarded(function, std::forward<Body>(body)));
}

}  // namespace tutti::nccl
