// The owner's side of windows, stages and votes; windows_listen.cpp has the listener's.
#include "device/windows.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/execute/signature.h"
#include "device/wait.h"

namespace tutti {
namespace {

// A rank's last signal of a call, which names its windows, may be read when the rank has long ended
// the call, freed the memory, and closed the window. So an id rests before another window gets it.
constexpr std::size_t kResting = 64;

}  // namespace

DeviceWindows::DeviceWindows(RankGroup& group, const DeviceExecutors& executors)
    : executors_(executors),
      one_process_(group.one_process()),
      board_(std::make_shared<DeviceWindowBoard>(group)),
      stages_(static_cast<std::size_t>(group.size())) {
  for (std::uint32_t id = 1; id < device::kMostWindows; ++id) free_ids_.push_back(id);
  for (const auto& executor : executors_) ranks_.push_back(executor->rank());
}

DeviceWindows::~DeviceWindows() {
  for (const int rank : ranks_) {
    const Stages& stages = stages_[static_cast<std::size_t>(rank)];
    for (std::byte* const memory : stages.memory) executors_.of(rank).device().deallocate(memory);
  }
}

std::optional<DeviceWindows::Spot> DeviceWindows::find(RankGroup& group, const void* buffer,
                                                       std::size_t bytes,
                                                       const WaitPolicy& policy) {
  if (bytes == 0) return Spot{};
  const auto* const at = static_cast<const std::byte*>(buffer);
  const CudaAllocation memory = executors_.of(group.rank()).device().allocation(at);
  if (memory.bytes == 0) return {};
  const auto offset = static_cast<std::size_t>(at - memory.base);
  if (offset > memory.bytes || bytes > memory.bytes - offset) return {};  // it spans several
  const std::lock_guard lock(mutex_);
  auto window = windows_.find(memory.base);
  if (window == windows_.end() || window->second.memory.id != memory.id ||
      window->second.memory.bytes != memory.bytes) {
    window = open(group, memory, policy);
  }
  if (window->second.id == 0) return {};
  return Spot{window->second.id, offset};
}

DeviceWindows::Windows::iterator DeviceWindows::open(RankGroup& group, const CudaAllocation& memory,
                                                     const WaitPolicy& policy) {
  board_->discover();
  // What lay there before is gone.
  for (auto w = windows_.begin(); w != windows_.end();) {
    const CudaAllocation& old = w->second.memory;
    const auto next = std::next(w);
    if (old.base < memory.base + memory.bytes && memory.base < old.base + old.bytes) {
      wait_until_heard(group, policy);
      close(w);
    }
    w = next;
  }
  Window window{memory, &executors_.of(group.rank()).device(), 0};
  if (const auto shared = share(*window.gpu, memory)) {
    const std::uint32_t id = free_ids_.front();
    free_ids_.pop_front();
    post(group, {id, true, shared->handle}, shared->fd, policy);
    if (board_->refused()) {  // some may have mapped it
      post(group, {id, false, {}}, {}, policy);
      free_ids_.push_back(id);
    } else {
      window.id = id;
      add(ranks_, id, memory.base, memory.bytes);
      ++counts_.opened;
    }
  }
  // Nothing depends on what cannot be shared, so it is not held.
  if (window.id == 0) window.memory.hold.reset();
  return windows_.emplace(memory.base, std::move(window)).first;
}

std::optional<CudaExport> DeviceWindows::share(device::Device& gpu,
                                               const CudaAllocation& memory) const {
  if (free_ids_.size() <= kResting) return {};
  const auto reaches = [&](const std::shared_ptr<device::Device>& other) {
    return other.get() == &gpu || other->can_address(memory.base);
  };
  if (!std::ranges::all_of(executors_.gpus(), reaches)) return {};
  if (one_process_) return CudaExport{};
  try {
    CudaExport shared = gpu.share(memory.base, memory.bytes);
    if (shared.handle.kinds != 0) return shared;
  } catch (const Error&) {  // such as what is not one piece for the driver
  }
  return {};
}

/// Once everybody has heard the notice before.
void DeviceWindows::close(Windows::iterator window) {
  if (const std::uint32_t id = window->second.id; id != 0) {
    board_->post({id, false, {}}, {});
    add(ranks_, id, nullptr, window->second.memory.bytes);
    free_ids_.push_back(id);
    ++counts_.closed;
  }
  windows_.erase(window);
}

void DeviceWindows::post(RankGroup& group, const DeviceWindowBoard::Notice& notice,
                         const FileDescriptor& fd, const WaitPolicy& policy) {
  wait_until_heard(group, policy);
  board_->post(notice, fd);
  wait_until_heard(group, policy);
}

void DeviceWindows::wait_until_heard(RankGroup& group, const WaitPolicy& policy) {
  DeviceWait wait(group, policy, "map its GPU memory");
  for (int deaf = board_->deaf(); deaf >= 0; deaf = board_->deaf()) wait.pause(deaf);
}

bool DeviceWindows::close_one_that_is_gone() {
  // Not while a call opens one: it may be waiting for a process that waits for this thread.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || windows_.empty() || !board_->is_complete() || board_->deaf() >= 0) return false;
  const auto is_gone = [&](const auto& window) {
    const CudaAllocation now = window.second.gpu->allocation(window.first);
    return now.base != window.first || now.id != window.second.memory.id;
  };
  try {
    const auto gone = std::ranges::find_if(windows_, is_gone);
    if (gone == windows_.end()) return false;
    close(gone);
    return true;
  } catch (const Error&) {  // CUDA has ended, as the process does; calls say what else there is
    return false;
  }
}

std::byte* DeviceWindows::stage(RankGroup& group, std::size_t which, std::size_t bytes,
                                const WaitPolicy& policy) {
  Stages& stages = stages_[static_cast<std::size_t>(group.rank())];
  Stages::Stage& stage = stages.newest[which];
  if (stage.bytes < bytes) {
    const std::size_t larger = std::max(bytes, 2 * stage.bytes);
    std::byte* const memory = executors_.of(group.rank()).device().allocate(larger);
    stages.memory.push_back(memory);
    stage = {memory, larger};
  }
  if (!find(group, stage.memory, bytes, policy)) {
    throw Error(ErrorCode::system,
                fmt::format("rank {} has a buffer in memory that other processes cannot map, for a "
                            "call that goes through windows, and they cannot map a copy of it "
                            "either; TUTTI_WINDOWS=0 does without windows",
                            group.rank()),
                group.rank());
  }
  ++counts_.staged;
  return stage.memory;
}

std::optional<bool> DeviceWindows::agreed(std::uint32_t kind) const {
  const std::lock_guard lock(votes_mutex_);
  const auto found = agreed_.find(kind);
  return found != agreed_.end() ? std::optional(found->second) : std::nullopt;
}

bool DeviceWindows::agree(RankGroup& group, std::uint32_t kind, std::uint64_t operation,
                          bool reachable, const WaitPolicy& policy) {
  std::unique_lock lock(votes_mutex_);
  vote_ended_.wait(lock, [&] { return agreed_.contains(kind) || !votes_now_; });
  if (const auto known = agreed_.find(kind); known != agreed_.end()) return known->second;
  votes_now_ = true;
  const std::uint64_t number = ++votes_;
  lock.unlock();
  const auto end = [&](std::optional<bool> result) {
    lock.lock();
    if (result) agreed_[kind] = *result;
    votes_now_ = false;
    vote_ended_.notify_all();
  };
  try {
    const bool result = vote(group, number, operation, reachable, policy);
    end(result);
    return result;
  } catch (...) {
    end({});
    throw;
  }
}

bool DeviceWindows::vote(RankGroup& group, std::uint64_t number, std::uint64_t operation,
                         bool reachable, const WaitPolicy& policy) {
  board_->discover();
  board_->vote(number, operation, reachable);
  bool all = reachable;
  DeviceWait wait(group, policy, "make the same call on GPU memory");
  for (const int process : board_->processes()) {
    auto vote = board_->vote_of(process, number);
    for (; !vote; vote = board_->vote_of(process, number)) wait.pause(process);
    if (vote->operation != operation) {
      compare_with_peers(group, CallsOn::gpu);  // which has the names
      group.liveness().throw_if_failed();
      throw Error(ErrorCode::mismatch,
                  fmt::format("calls do not match: ranks {} and {} make different calls on GPU "
                              "memory. All ranks must make the same calls in the same order",
                              group.rank(), process),
                  process);
    }
    all = all && vote->yes;
  }
  return all;
}

}  // namespace tutti
