// The one way from NCCL's semantics to Tutti's communicators: calls that were checked, on streams,
// in; what runs them is chosen here by where their memory is.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "bindings/nccl/comm.h"

namespace tutti::nccl {

/// One operation of one communicator.
struct Task {
  ncclComm* comm = nullptr;
  Call call;
  cudaStream_t stream = nullptr;
  const void* scalar = nullptr;    // of the operator, if it is read at execution
  std::shared_ptr<void> staged{};  // the input, where the call is in place but cannot be
};

/// Whether the operation may run, as tutti::Communicator judges it, which run() asks too: for
/// operations that do not run at once. Throws Error.
void check(const Task& task);

/// Runs the tasks of a group; those on host memory are done on return, those on device memory are
/// on their streams. The caller has the turns of all
/// communicators. For each communicator, collectives run in their order, then its messages
/// together; communicators progress side by side. Throws Error.
void run(std::span<Task> tasks);

}  // namespace tutti::nccl
