#include "transport/verbs/windows.h"

#include <utility>

#include "core/error.h"
#include "core/log.h"

namespace tutti {

VerbsWindows::VerbsWindows(std::shared_ptr<VerbsDevice> device) : device_(std::move(device)) {
  add_observer(*this);
}

VerbsWindows::~VerbsWindows() { remove_observer(*this); }

std::shared_ptr<const VerbsMemory> VerbsWindows::region(const void* memory, std::size_t bytes) {
  const WindowMemory window = find_window(memory, bytes);
  if (window.id == 0) return nullptr;
  if (window.heap) note_pinned_heap();
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = by_id_.try_emplace(window.id);
  if (is_new) {
    try {
      found->second = std::make_shared<VerbsMemory>(device_, window.base, window.bytes);
    } catch (const Error& error) {
      log().info("verbs: a window is copied through slots, as the device cannot reach it: {}",
                 error.what());
    }
  }
  return found->second;
}

std::shared_ptr<VerbsMemory> VerbsWindows::expose(std::uint64_t key, void* memory,
                                                  std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  std::erase_if(exposed_, [](const auto& e) { return e.second.expired(); });
  std::weak_ptr<VerbsMemory>& kept = exposed_[key];
  if (auto there = kept.lock()) return there;
  try {
    auto made = std::make_shared<VerbsMemory>(device_, memory, bytes);
    kept = made;
    return made;
  } catch (const Error& error) {
    log().info("verbs: puts to a window go through slots, as the device cannot reach it: {}",
               error.what());
    return nullptr;
  }
}

std::size_t VerbsWindows::count() {
  const std::lock_guard lock(mutex_);
  std::size_t count = 0;
  for (const auto& [id, memory] : by_id_) count += memory != nullptr ? 1 : 0;
  return count;
}

void VerbsWindows::window_freed(std::uint32_t id) noexcept {
  if (!device_->is_ours()) return;  // a child's copy of the window is gone, nothing else
  const std::lock_guard lock(mutex_);
  by_id_.erase(id);
}

}  // namespace tutti
