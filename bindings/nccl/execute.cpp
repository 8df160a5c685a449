#include "bindings/nccl/execute.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "bindings/nccl/memory.h"
#include "bindings/nccl/result.h"
#include "comm/impl.h"

namespace tutti::nccl {
namespace {

bool is_message(const Task& task) { return task.call.collective == Collective::send_recv; }

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

void run_grouped(std::span<Task* const> tasks) {
  if (tasks.empty()) return;
  group([&] {
    for (const Task* task : tasks) run_one(*task);
  });
}

/// The tasks of one communicator. Its collectives run one by one, as they do outside of groups,
/// because other ranks may call the same ones without a group.
void run_communicator(std::span<Task* const> tasks) {
  std::vector<Task*> messages;
  for (Task* task : tasks) {
    if (is_message(*task)) {
      messages.push_back(task);
    } else {
      run_one(*task);
    }
  }
  run_grouped(messages);
}

/// The tasks of several communicators, of which some reach into other processes: a thread each, so
/// that each runs as it does outside of groups.
void run_in_threads(const std::vector<std::vector<Task*>>& by_comm) {
  std::vector<std::exception_ptr> errors(by_comm.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t i = 0; i < by_comm.size(); ++i) {
      const auto body = [&by_comm, &errors, i] {
        try {
          run_communicator(by_comm[i]);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      };
      if (i + 1 < by_comm.size()) {
        threads.emplace_back(body);
      } else {
        body();
      }
    }
  }
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

void run_on_host(std::span<Task> tasks) {
  for (Task& task : tasks) resolve(task);
  if (tasks.size() == 1) return run_one(tasks.front());
  std::vector<std::vector<Task*>> by_comm;
  for (Task& task : tasks) {
    const auto same = std::find_if(by_comm.begin(), by_comm.end(), [&](const auto& list) {
      return list.front()->comm == task.comm;
    });
    (same != by_comm.end() ? *same : by_comm.emplace_back()).push_back(&task);
  }
  if (by_comm.size() == 1) return run_communicator(by_comm.front());
  const bool one_process = std::all_of(by_comm.begin(), by_comm.end(), [](const auto& list) {
    return list.front()->comm->communicator.impl().group->one_process();
  });
  if (!one_process) return run_in_threads(by_comm);
  std::vector<Task*> all;
  for (Task& task : tasks) all.push_back(&task);
  run_grouped(all);
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
