// The owner's side of windows, and stages; windows_listen.cpp has the listener's.
#include "device/windows.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/settings.h"

namespace tutti {
namespace {

// A rank's last signal of a call, which names its windows, may be read when the rank has long ended
// the call, freed the memory, and closed the window. So an id rests before another window gets it.
constexpr std::size_t kResting = 64;

}  // namespace

DeviceWindows::DeviceWindows(RankGroup& group, const DeviceExecutors& executors)
    : executors_(executors),
      one_process_(group.one_process()),
      are_wanted_(one_process_ || setting_boolean("TUTTI_CUDA_WINDOWS")),
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

std::optional<WindowOffset> DeviceWindows::find(RankGroup& group, const void* buffer,
                                                std::size_t bytes, const WaitPolicy& policy) {
  if (bytes == 0) return WindowOffset{};
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
  return WindowOffset{window->second.id, offset};
}

DeviceWindows::Windows::iterator DeviceWindows::open(RankGroup& group, const CudaAllocation& memory,
                                                     const WaitPolicy& policy) {
  board_->discover();
  // What lay there before is gone.
  for (auto w = windows_.begin(); w != windows_.end();) {
    const CudaAllocation& old = w->second.memory;
    const auto next = std::next(w);
    if (old.base < memory.base + memory.bytes && memory.base < old.base + old.bytes) {
      wait_for_answers(group, policy);
      close(w);
    }
    w = next;
  }
  OwnWindow window{memory, &executors_.of(group.rank()).device(), 0};
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

/// Once all have answered the notice before.
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
  wait_for_answers(group, policy);
  board_->post(notice, fd);
  wait_for_answers(group, policy);
}

void DeviceWindows::wait_for_answers(RankGroup& group, const WaitPolicy& policy) {
  PeerWait wait(group, policy, "map its GPU memory");
  for (int process = board_->awaited(); process >= 0; process = board_->awaited()) {
    wait.until(process, [&] { return board_->awaited() != process; });
  }
}

bool DeviceWindows::close_one_that_is_gone() {
  // Not while a call opens one: it may be waiting for a process that waits for this thread.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || windows_.empty() || !board_->is_complete() || board_->awaited() >= 0) return false;
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
                            "either; TUTTI_CUDA_WINDOWS=0 does without windows",
                            group.rank()),
                group.rank());
  }
  ++counts_.staged;
  return stage.memory;
}

}  // namespace tutti
