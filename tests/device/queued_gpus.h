// GPUs that threads stand in for (cuda_host_device.h), each with a queue: so one thread can give
// work to several that wait for each other. And buffers on them.
#pragma once

#include <gtest/gtest.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <queue>
#include <thread>
#include <utility>
#include <vector>

#include "tests/device/device_memory.h"

namespace tutti::test {

/// A device whose work is queued, so that one thread can give work to several that wait for each
/// other. Knows its memory.
class QueuedDevice : public HostDevice {
 public:
  explicit QueuedDevice(int ordinal) : ordinal_(ordinal) {}
  ~QueuedDevice() override {
    enqueue({});
    worker_.join();
  }

  bool is_private = false;  // the memory that allocate() gives: no other device can address it
  bool is_reached = false;  // by network cards, which find that memory where it lies
  Reach links = Reach::memory;

  Identity identity() const override { return {static_cast<std::uint64_t>(ordinal_), 7}; }
  Reach reach(const Identity& other) override {
    return other == identity() ? Reach::whole_lines : links;
  }
  bool can_address(const std::byte* memory) override;
  CudaAllocation allocation(const std::byte* memory) override {
    const std::lock_guard lock(mutex_);
    auto piece = pieces_.upper_bound(memory);
    if (piece == pieces_.begin()) return {};
    --piece;
    CudaAllocation found = piece->second.memory;
    return memory < found.base + found.bytes ? found : CudaAllocation{};
  }
  CudaExport share(const std::byte*, std::size_t) override {
    ADD_FAILURE() << "there is no other process";
    return {};
  }
  FileDescriptor dma_buf(const std::byte* memory, std::size_t bytes) override {
    return is_reached ? FileDescriptor(eventfd(0, EFD_CLOEXEC))
                      : HostDevice::dma_buf(memory, bytes);
  }
  RdmaOrder rdma_order() override { return RdmaOrder::always; }
  std::byte* allocate(std::size_t bytes) override {
    std::byte* const memory = HostDevice::allocate(bytes);
    const std::lock_guard lock(mutex_);
    pieces_[memory] = {{memory, bytes, ++allocations_, nullptr}, is_private};
    return memory;
  }
  void deallocate(std::byte* memory) noexcept override {
    const std::lock_guard lock(mutex_);
    pieces_.erase(memory);
    HostDevice::deallocate(memory);
  }
  bool has_private(const std::byte* memory) {
    const CudaAllocation a = allocation(memory);
    const std::lock_guard lock(mutex_);
    return a.bytes > 0 && pieces_[a.base].is_private;
  }

  /// What is queued from now on waits until release().
  void hold() {
    held_ = true;
    enqueue([this] { held_.wait(true); });
  }
  void release() {
    held_ = false;
    held_.notify_all();
  }

  void launch(const device::Launch& launch, DataType type, std::uint32_t blocks,
              device::Stream stream) override {
    enqueue([=, this] { HostDevice::launch(launch, type, blocks, stream); });
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes,
            device::Stream stream) override {
    enqueue([=, this] { HostDevice::copy(to, from, bytes, stream); });
  }
  void overwrite(std::byte* to, std::span<const std::byte> from, device::Stream) override {
    enqueue([=, this, data = std::vector(from.begin(), from.end())] { upload(to, data); });
  }
  void drain(const void*) noexcept override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return queue_.empty(); });
  }

 private:
  struct Piece {
    CudaAllocation memory;
    bool is_private = false;
  };

  void enqueue(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    queue_.push(std::move(work));
    changed_.notify_all();
  }
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !queue_.empty(); });
      const std::function<void()> next = queue_.front();
      lock.unlock();
      if (!next) return;
      next();
      lock.lock();
      queue_.pop();
      changed_.notify_all();
    }
  }

  int ordinal_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::queue<std::function<void()>> queue_;
  std::map<const std::byte*, Piece> pieces_;
  std::uint64_t allocations_ = 0;
  std::atomic<bool> held_{false};
  std::thread worker_{[this] { work(); }};
};

inline std::vector<std::shared_ptr<QueuedDevice>> gpus;

inline int owner_of(const void* memory) {
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    if (gpus[i]->allocation(static_cast<const std::byte*>(memory)).bytes > 0) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

inline bool QueuedDevice::can_address(const std::byte* memory) {
  return !gpus[static_cast<std::size_t>(owner_of(memory))]->has_private(memory);
}

inline Gpus queued_gpus() {
  return {owner_of, [] { return 0; },
          [](int ordinal) -> std::shared_ptr<device::Device> {
            return gpus.at(static_cast<std::size_t>(ordinal));
          }};
}

/// Memory of a GPU.
class Buffer {
 public:
  Buffer(int gpu, const Data& data) : gpu_(*gpus[static_cast<std::size_t>(gpu)]) {
    memory_ = reinterpret_cast<std::int32_t*>(gpu_.allocate(4 * data.size()));
    count_ = data.size();
    std::ranges::copy(data, memory_);
  }
  Buffer(int gpu, std::size_t count) : Buffer(gpu, Data(count, -1)) {}
  Buffer(Buffer&& other) noexcept
      : gpu_(other.gpu_), memory_(std::exchange(other.memory_, nullptr)), count_(other.count_) {}
  ~Buffer() {
    if (memory_ != nullptr) gpu_.deallocate(reinterpret_cast<std::byte*>(memory_));
  }
  std::int32_t* data() const { return memory_; }
  /// When nothing runs any more.
  Data read() const { return {memory_, memory_ + count_}; }

 private:
  QueuedDevice& gpu_;
  std::int32_t* memory_ = nullptr;
  std::size_t count_ = 0;
};

inline Call call_on(Collective collective, const Buffer& in, const Buffer& out, std::size_t count) {
  Call call;
  call.collective = collective;
  call.in = in.data();
  call.out = out.data();
  call.count = count;
  call.type = kType;
  return call;
}

inline void wait_for_all() {
  for (const auto& gpu : gpus) gpu->drain(nullptr);
}

}  // namespace tutti::test
