#include "bindings/nccl/execute.h"

#include <cstring>
#include <vector>

#include "bindings/nccl/memory.h"
#include "bindings/nccl/result.h"
#include "comm/impl.h"

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
    std::memcpy(&task.call.op.scalar, task.scalar, size_of(task.call.type));
  }
  if (needs_staging(task.call)) {
    check(task);  // before anything of that size is allocated
    const std::size_t bytes = bytes_of_all_blocks(task);
    task.staged = std::make_unique<std::byte[]>(bytes);
    std::memcpy(task.staged.get(), task.call.in, bytes);
    task.call.in = task.staged.get();
  }
}

void run_one(const Task& task) { task.comm->communicator.run(task.call); }

void run_on_host(std::span<Task> tasks) {
  for (Task& task : tasks) resolve(task);
  if (tasks.size() == 1) return run_one(tasks.front());
  group([&] {
    for (const Task& task : tasks) run_one(task);
  });
}

}  // namespace

void check(const Task& task) {
  const Communicator::Impl& impl = task.comm->communicator.impl();
  if (!needs_staging(task.call)) return impl.check(task.call);
  Call apart = task.call;  // as it will be: the input elsewhere
  apart.in = static_cast<const std::byte*>(task.call.out) + bytes_of_all_blocks(task);
  impl.check(apart);
}

void run(std::span<Task> tasks) {
  for (const Task& task : tasks) {
    if (memory_of(task.call.in) != MemoryKind::host ||
        memory_of(task.call.out) != MemoryKind::host) {
      refuse_usage("a buffer is device memory; this build of Tutti moves host memory only");
    }
  }
  run_on_host(tasks);
}

}  // namespace tutti::nccl
