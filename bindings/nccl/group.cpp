#include "bindings/nccl/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bindings/nccl/export.h"
#include "bindings/nccl/log.h"
#include "core/background.h"

namespace tutti::nccl {
namespace {

/// What a group consists of.
struct Work {
  std::vector<Opening> openings;
  std::vector<Task> tasks;
  std::vector<ncclComm*> destructions;
};

struct Group {
  int depth = 0;
  ncclResult_t error = ncclSuccess;  // the first call that was refused
  std::optional<bool> blocking;      // of the communicators in it
  Work work;
};

Group& open_group() {
  thread_local Group group;
  return group;
}

// --- Carrying out -------------------------------------------------------------------------------

/// What became of an opening, for the holders of the communicator.
ncclResult_t conclude(std::string_view function, const Opening& o, bool blocking,
                      ncclResult_t result) {
  if (o.child == nullptr) return result;
  o.child->async.store(result, std::memory_order_release);
  Phase expected = Phase::opening;
  // release: a thread that sees it ready sees the communicator.
  if (!o.child->phase.compare_exchange_strong(expected, Phase::ready, std::memory_order_acq_rel)) {
    free_handle(*o.child);
    if (result == ncclSuccess) {
      set_last_error(fmt::format("{}: the communicator was aborted while it was made", function));
      result = ncclInvalidUsage;
    }
  } else if (result != ncclSuccess && blocking) {
    free_handle(*o.child);
    *o.out = nullptr;
  } else if (result == ncclSuccess) {
    write_log(LogLevel::info,
              fmt::format("{} comm {} rank {} nranks {} name \"{}\" - Init COMPLETE", function,
                          fmt::ptr(o.child), o.child->rank, o.child->size, o.child->config.name));
  }
  return result;
}

ncclResult_t open_one(std::string_view function, const Opening& o, bool blocking) {
  ncclResult_t result = ncclSuccess;
  try {
    Communicator made = o.open();
    if (o.child != nullptr) o.child->communicator = std::move(made);
  } catch (...) {
    result = caught(function);
  }
  return conclude(function, o, blocking, result);
}

/// Each opening waits for other ranks, which may be others of these: so side by side, but those of
/// one parent in their order.
ncclResult_t open_all(std::string_view function, const std::vector<Opening>& openings,
                      bool blocking) {
  std::deque<std::vector<const Opening*>> series;
  for (const Opening& o : openings) {
    const auto same = std::find_if(series.begin(), series.end(), [&](const auto& s) {
      return o.parent != nullptr && s.front()->parent == o.parent;
    });
    (same != series.end() ? *same : series.emplace_back()).push_back(&o);
  }
  std::vector<ncclResult_t> results(series.size(), ncclSuccess);
  const auto carry_out = [&](std::size_t i) {
    for (const Opening* o : series[i]) {
      const ncclResult_t result = open_one(function, *o, blocking);
      if (results[i] == ncclSuccess) results[i] = result;
    }
  };
  try {
    run_side_by_side(series.size(), carry_out);
  } catch (...) {  // there are no more threads
    const ncclResult_t result = caught(function);
    for (const Opening& o : openings) conclude(function, o, blocking, result);
    return result;
  }
  const auto failed =
      std::find_if(results.begin(), results.end(), [](ncclResult_t r) { return r != ncclSuccess; });
  return failed != results.end() ? *failed : ncclSuccess;
}

ncclResult_t run_all(std::string_view function, std::span<Task> tasks, bool blocking) {
  std::set<ncclComm*> comms;
  for (const Task& task : tasks) comms.insert(task.comm);
  ncclResult_t result = ncclSuccess;
  try {
    std::deque<Use> uses;
    for (ncclComm* comm : comms) uses.emplace_back(*comm);
    try {
      run(tasks);
    } catch (...) {
      result = caught(function, (*comms.begin())->rank);
    }
    for (ncclComm* comm : comms) {
      if (!blocking) comm->async.store(result, std::memory_order_release);
    }
  } catch (...) {
    result = caught(function);
  }
  return result;
}

ncclResult_t carry_out(std::string_view function, Work& work, bool blocking) {
  ncclResult_t result = open_all(function, work.openings, blocking);
  if (result == ncclSuccess && !work.tasks.empty()) {
    result = run_all(function, work.tasks, blocking);
  } else if (!blocking) {  // nothing of them runs
    for (const Task& task : work.tasks) task.comm->async.store(result, std::memory_order_release);
  }
  for (ncclComm* comm : work.destructions) {
    try {
      destroy(*comm);
    } catch (...) {
      const ncclResult_t destroyed = caught(function);
      if (result == ncclSuccess) result = destroyed;
    }
  }
  return result;
}

/// On a thread of its own, with the communicators in progress meanwhile. Nobody waits for it but by
/// asking them.
ncclResult_t start(std::string_view function, Work work) {
  const auto set_async = [](const std::vector<ncclComm*>& comms, ncclResult_t result) {
    for (ncclComm* comm : comms) {
      if (comm->live.load(std::memory_order_acquire)) {
        comm->async.store(result, std::memory_order_release);
      }
    }
  };
  std::vector<ncclComm*> parents, users;
  for (const Opening& o : work.openings) {
    if (o.parent != nullptr) parents.push_back(o.parent);
  }
  for (const Task& task : work.tasks) users.push_back(task.comm);
  set_async(parents, ncclInProgress);
  set_async(users, ncclInProgress);
  const auto kept = std::make_shared<Work>(std::move(work));
  try {
    run_in_background("tutti-nccl", [kept, parents, set_async, name = std::string(function)](int) {
      set_async(parents, carry_out(name, *kept, false));
    });
  } catch (...) {  // nothing has begun
    const ncclResult_t result = caught(function);
    for (const Opening& o : kept->openings) conclude(function, o, false, result);
    set_async(parents, result);
    set_async(users, result);
    return result;
  }
  return ncclInProgress;
}

ncclResult_t carry_out_or_start(std::string_view function, Work work, bool blocking) {
  return blocking ? carry_out(function, work, true) : start(function, std::move(work));
}

/// Refuses to mix.
void join_group(Group& group, bool blocking) {
  if (group.blocking.value_or(blocking) != blocking) {
    refuse_argument("a group cannot have blocking and nonblocking communicators");
  }
  group.blocking = blocking;
}

/// Takes what the group of this thread has come to, and forgets it.
Group close_group() {
  Group closed = std::move(open_group());
  open_group() = Group();
  threads_in_groups.fetch_sub(1, std::memory_order_relaxed);
  return closed;
}

/// New communicators that will not be made.
void drop(const Work& work) {
  for (const Opening& o : work.openings) {
    if (o.child == nullptr) continue;
    free_handle(*o.child);
    *o.out = nullptr;
  }
}

/// Ends the innermost group; the group if it was the outermost.
std::optional<Group> end_group() {
  Group& group = open_group();
  if (group.depth == 0)
    refuse_usage("not in a group: ncclGroupStart was not called on this thread");
  if (--group.depth > 0) return std::nullopt;
  return close_group();
}

}  // namespace

std::atomic<int> threads_in_groups{0};

ncclResult_t note_in_open_group(ncclResult_t result) noexcept {
  Group& group = open_group();
  if (group.depth > 0 && group.error == ncclSuccess && result != ncclInProgress) {
    group.error = result;
  }
  return result;
}

ncclResult_t submit(std::string_view function, Opening opening, bool blocking) {
  Group& group = open_group();
  if (group.depth > 0) {
    join_group(group, blocking);
    group.work.openings.push_back(std::move(opening));
    return ncclSuccess;
  }
  Work work;
  work.openings.push_back(std::move(opening));
  return carry_out_or_start(function, std::move(work), blocking);
}

bool runs_at_once(const ncclComm& comm) {
  return comm.config.blocking && (!group_may_be_open() || open_group().depth == 0);
}

ncclResult_t run_at_once(std::string_view function, ncclComm& comm, const Call& call) {
  try {
    const Use held(comm);
    comm.communicator.run(call);
    return ncclSuccess;
  } catch (...) {
    return caught(function, comm.rank);
  }
}

ncclResult_t submit(std::string_view function, Task&& task) {
  Group& group = open_group();
  const bool blocking = task.comm->config.blocking;
  if (group.depth > 0) {
    join_group(group, blocking);
    check(task);
    group.work.tasks.push_back(std::move(task));
    return ncclSuccess;
  }
  if (blocking) {
    // Nothing is allocated or checked twice.
    try {
      const Use held(*task.comm);
      run({&task, 1});
      return ncclSuccess;
    } catch (...) {
      return caught(function, task.comm->rank);
    }
  }
  check(task);
  Work work;
  work.tasks.push_back(std::move(task));
  return start(function, std::move(work));
}

ncclResult_t submit_destruction(std::string_view function, ncclComm& comm) {
  Group& group = open_group();
  if (group.depth > 0) {
    group.work.destructions.push_back(&comm);
    return ncclSuccess;
  }
  Work work;
  work.destructions.push_back(&comm);
  return carry_out(function, work, true);
}

}  // namespace tutti::nccl

using namespace tutti::nccl;

NCCL_API(ncclResult_t, ncclGroupStart, (void)) {
  if (++open_group().depth == 1) threads_in_groups.fetch_add(1, std::memory_order_relaxed);
  return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclGroupEnd, (void)) {
  return guarded("ncclGroupEnd", [] {
    std::optional<Group> group = end_group();
    if (!group) return ncclSuccess;
    if (group->error != ncclSuccess) {
      drop(group->work);
      return group->error;
    }
    return carry_out_or_start("ncclGroupEnd", std::move(group->work),
                              group->blocking.value_or(true));
  });
}

NCCL_API(ncclResult_t, ncclGroupSimulateEnd, (ncclSimInfo_t * simInfo)) {
  return guarded("ncclGroupSimulateEnd", [&] {
    std::optional<Group> group = end_group();
    if (group) drop(group->work);
    require(simInfo, "simInfo");
    if (simInfo->magic != 0x74685283 || simInfo->size < sizeof *simInfo) {
      refuse_argument("the ncclSimInfo_t was not initialised with NCCL_SIM_INFO_INITIALIZER");
    }
    simInfo->estimatedTime = NCCL_UNDEF_FLOAT;
    return group ? group->error : ncclSuccess;
  });
}
