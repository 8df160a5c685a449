// The one way from NCCL's semantics to Tutti's communicators. It takes checked calls, with their
// streams, and runs them on the host or on a GPU, by the place of their memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "bindings/nccl/comm.h"
#include "comm/window.h"

namespace tutti::nccl {

/// A call of a window.
struct OneSidedCall {
  std::shared_ptr<Window> window;
  WindowCall call;
};

/// One operation of one communicator.
struct Task {
  ncclComm* comm = nullptr;
  Call call;
  cudaStream_t stream = nullptr;
  const void* scalar = nullptr;    // of the operator, if it is read at execution
  std::shared_ptr<void> staged{};  // the input, where the call is in place but cannot be
  std::shared_ptr<const std::vector<OneSidedCall>> one_sided{};  // instead of `call`
};

/// Whether the call is on memory of the host, and runs as it is.
bool is_simple(const Call& call);

/// Whether the operation may run, as tutti::Communicator judges it, which run() asks too: for
/// operations that do not run at once. Throws Error.
void check(const Task& task);

/// Runs the tasks of a group; tasks on host memory are over on return, tasks on device memory are
/// on their streams. The caller has the turns of all communicators. For each communicator,
/// collectives run in their order, then its messages together; communicators progress side by side.
/// Throws Error.
void run(std::span<Task> tasks);

}  // namespace tutti::nccl
