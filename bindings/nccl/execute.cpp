#include "bindings/nccl/execute.h"

#include <cstring>
#include <memory>
#include <vector>

#include "bindings/nccl/memory.h"
#include "bindings/nccl/result.h"
#include "comm/impl.h"
#include "transport/gpu/cuda_module.h"

namespace tutti::nccl {
namespace {

/// NCCL's users call all_to_all with one buffer for both, though it is not promised to work;
/// nccl-tests does. Tutti has no such form, so the input is copied first.
bool needs_staging(const Call& call) {
  return call.collective == Collective::all_to_all && call.in == call.out && call.in != nullptr;
}

std::size_t bytes_of_all_blocks(const Task& task) {
  return task.call.count * size_of(task.call.type) * static_cast<std::size_t>(task.comm->size);
}

/// What must wait until the operation runs.
void resolve(Task& task) {
  if (task.scalar != nullptr) {
    const std::size_t bytes = size_of(task.call.type);
    if (memory_of(task.scalar) == MemoryKind::host) {
      std::memcpy(&task.call.op.scalar, task.scalar, bytes);
    } else {
      // What was put on the stream before may write it, so the host waits for that.
      cuda().read(&task.call.op.scalar, task.scalar, bytes, task.stream);
    }
  }
  if (!needs_staging(task.call)) return;
  check(task);  // before anything of that size is allocated
  const std::size_t bytes = bytes_of_all_blocks(task);
  if (memory_of(task.call.in) == MemoryKind::host) {
    task.staged.reset(new std::byte[bytes], std::default_delete<std::byte[]>());
    std::memcpy(task.staged.get(), task.call.in, bytes);
  } else {
    task.staged.reset(cuda().duplicate(task.call.in, bytes, task.stream),
                      [stream = task.stream](void* copy) { cuda().free_duplicate(copy, stream); });
  }
  task.call.in = task.staged.get();
}

/// Where a task's buffers are; those of no bytes do not count, so that ranks agree.
MemoryKind kind_of(const Task& task) {
  const Call& call = task.call;
  const MemoryKind in = memory_of(call.in);
  const MemoryKind out = memory_of(call.out);
  if ((in == MemoryKind::host && out == MemoryKind::host) || call.count == 0) {
    return MemoryKind::host;
  }
  const BufferSizes sizes = buffer_sizes(call, task.comm->rank, task.comm->size);
  if (sizes.in > 0 && sizes.out > 0 && in != out) {
    refuse_usage("one buffer is host memory, the other device memory; both must be the same");
  }
  return sizes.out > 0 ? out : in;
}

void run_one(const Task& task) {
  if (task.one_sided) {
    for (const OneSidedCall& one : *task.one_sided) one.window->run(one.call);
    return;
  }
  Communicator& communicator = task.comm->communicator;
  if (kind_of(task) == MemoryKind::host) {
    communicator.run(task.call);
  } else {
    communicator.run(task.call, task.stream);
  }
}

}  // namespace

bool is_simple(const Call& call) {
  return !needs_staging(call) && memory_of(call.in) == MemoryKind::host &&
         memory_of(call.out) == MemoryKind::host;
}

void check(const Task& task) {
  const Communicator::Impl& impl = task.comm->communicator.impl();
  if (!needs_staging(task.call)) return impl.check(task.call);
  Call apart = task.call;  // as it will be: the input elsewhere
  apart.in = static_cast<const std::byte*>(task.call.out) + bytes_of_all_blocks(task);
  impl.check(apart);
}

void run(std::span<Task> tasks) {
  for (Task& task : tasks) resolve(task);
  if (tasks.size() == 1) return run_one(tasks.front());
  group([&] {
    for (const Task& task : tasks) run_one(task);
  });
}

}  // namespace tutti::nccl
