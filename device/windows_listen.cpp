// The listener's side of windows: what other processes say of theirs.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/background.h"
#include "core/wait.h"
#include "device/windows.h"

namespace tutti {
namespace {

// Of 20 ms: how often the allocations are looked at.
constexpr std::uint32_t kLooksPerCheck = 4;

}  // namespace

void DeviceWindows::look() {
  board_->discover();
  for (const int process : board_->processes()) {
    if (board_->is_gone(process)) {
      // Nothing runs any more that could use them.
      for (auto m = mappings_.lower_bound({process, 0});
           m != mappings_.end() && m->first.first == process; m = mappings_.erase(m)) {
        drop(std::move(m->second));
      }
    } else if (const auto notice = board_->next(process)) {
      board_->answer(process, !take(process, *notice));
    }
  }
  mapped_ = mappings_.size();
  if (++looks_ < kLooksPerCheck) return;
  looks_ = close_one_that_is_gone() ? kLooksPerCheck - 1 : 0;
}

bool DeviceWindows::take(int process, const DeviceWindowBoard::Notice& notice) {
  const std::pair key{process, notice.window};
  const bool is_open = mappings_.contains(key);
  if (notice.window == 0 || notice.window >= device::kMostWindows || (notice.opens && is_open)) {
    throw Error(ErrorCode::internal,
                fmt::format("rank {} {} a window {} of GPU memory, which makes no sense", process,
                            notice.opens ? "opens" : "closes", notice.window),
                process);
  }
  board_->discover();  // a rank's card comes before any notice of its process
  const std::vector<int> ranks = board_->ranks_of(process);
  if (!notice.opens) {
    if (!is_open) return true;  // it was refused
    // Nobody uses it. But a signal that names it may still be read, and should make sense.
    add(ranks, notice.window, nullptr, mappings_[key].front().bytes);
    drop(std::move(mappings_[key]));
    mappings_.erase(key);
    return true;
  }
  Mappings mappings;
  try {
    mappings = map(process, notice.handle);
  } catch (const Error&) {
    return false;
  }
  const auto is_smaller = [&](const auto& mapping) { return mapping.bytes < notice.handle.bytes; };
  if (notice.handle.offset != 0 || std::ranges::any_of(mappings, is_smaller)) return false;
  add(ranks, notice.window, mappings, notice.handle.bytes);
  mappings_.emplace(key, std::move(mappings));
  return true;
}

DeviceWindows::Mappings DeviceWindows::map(int process, const CudaMemoryHandle& handle) {
  FileDescriptor fd;
  if ((handle.kinds & CudaMemoryHandle::kFd) != 0) fd = board_->descriptor(process);
  Mappings mappings;
  for (const auto& gpu : executors_.gpus()) mappings.push_back(map(*gpu, handle, fd));
  return mappings;
}

device::Mapping DeviceWindows::map(device::Device& gpu, const CudaMemoryHandle& handle,
                                   const FileDescriptor& fd) {
  // CUDA maps no memory where a peer had other memory before, until that has been unmapped.
  device::Mapping mapping;
  const auto is_mapped = [&] {
    const bool may_help = dropping_->load(std::memory_order_acquire) > 0;
    try {
      mapping = gpu.map(handle, fd);
      return true;
    } catch (const Error&) {
      if (!may_help) throw;
      return false;
    }
  };
  constexpr auto kPatience = std::chrono::milliseconds(300);
  if (!wait_until(deadline_after(kPatience), is_mapped, OnStop::ends)) return gpu.map(handle, fd);
  return mapping;
}

void DeviceWindows::add(const std::vector<int>& ranks, std::uint32_t id, std::byte* base,
                        std::size_t bytes) {
  for (const auto& executor : executors_) {
    for (const int rank : ranks) executor->add_window(rank, id, base, bytes);
  }
}

void DeviceWindows::add(const std::vector<int>& ranks, std::uint32_t id, const Mappings& mappings,
                        std::size_t bytes) {
  for (const auto& executor : executors_) {
    std::byte* const base = mappings[executors_.gpu_index(executor->rank())].data;
    for (const int rank : ranks) executor->add_window(rank, id, base, bytes);
  }
}

// The driver may wait for kernels that run before it unmaps, and these for what this thread has to
// answer: so another thread does it.
void DeviceWindows::drop(Mappings mappings) {
  const auto held = std::make_shared<Mappings>(std::move(mappings));
  dropping_->fetch_add(1, std::memory_order_relaxed);
  const auto unmap = [held, dropping = dropping_](int) {
    *held = {};
    // release: it is unmapped.
    dropping->fetch_sub(1, std::memory_order_release);
    dropping->notify_all();
  };
  try {
    run_in_background("tutti-unmap", unmap);
  } catch (const Error&) {  // there are no more threads
    unmap(0);
  }
}

void DeviceWindows::leave() {
  // What others will free next must not be mapped any more.
  while (const int left = dropping_->load(std::memory_order_acquire)) dropping_->wait(left);
  mappings_.clear();
  mapped_ = 0;
}

}  // namespace tutti
