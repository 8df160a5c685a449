// The windows of this process (core/window_memory.h) that a device may read and write, and peers
// through it: each is registered as a whole when it is first asked for, and until it is freed. So
// users' buffers that lie in windows need no copies.
//
// This is a cache by window, not by address: a window says when it ends, and has a number that no
// other one gets. Of any other memory nobody could say whether it is still what was registered:
// what is unmapped and mapped anew looks the same, and the device would go on with the old pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "core/window_memory.h"
#include "transport/verbs/memory_region.h"

namespace tutti {

class VerbsWindows final : WindowObserver {
 public:
  explicit VerbsWindows(std::shared_ptr<VerbsDevice> device);
  ~VerbsWindows();
  VerbsWindows(const VerbsWindows&) = delete;
  VerbsWindows& operator=(const VerbsWindows&) = delete;

  /// Of the window that holds all of this memory; null: there is no such window, or the device
  /// refuses it. Thread-safe. Registering takes ms for MiB.
  std::shared_ptr<const VerbsMemory> region(const void* memory, std::size_t bytes);

  /// Any memory that peers are to write to, with a registration of its own, which ends with the
  /// last that holds it. Null: the device refuses it. Thread-safe.
  std::shared_ptr<VerbsMemory> expose(std::uint64_t key, void* memory, std::size_t bytes);

  const std::shared_ptr<VerbsDevice>& device() const { return device_; }
  /// How many are registered.
  std::size_t count();

 private:
  void window_freed(std::uint32_t id) noexcept override;

  const std::shared_ptr<VerbsDevice> device_;
  std::mutex mutex_;
  std::unordered_map<std::uint32_t, std::shared_ptr<VerbsMemory>> by_id_;  // null: refused
  std::unordered_map<std::uint64_t, std::weak_ptr<VerbsMemory>> exposed_;  // by key
};

}  // namespace tutti
