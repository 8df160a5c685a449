// A GPU that threads stand in for (cuda_host_device.h), with streams: each is a queue, and a thread
// that does its work in order. Events order streams. So work of different streams really runs side
// by side, and a program that forgets an event reads what is not there yet.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "device/gpus.h"
#include "tests/collectives/cuda/cuda_host_device.h"

namespace tutti::test {

class StreamedGpu : public HostDevice {
 public:
  /// `work` after what is on `stream`.
  void put(device::Stream stream, std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    static_cast<Lane*>(stream)->queue.push_back(std::move(work));
    changed_.notify_all();
  }

  /// The owner of this memory: 0, or -1: the host.
  int owner(const void* memory) {
    const std::lock_guard lock(mutex_);
    const auto* const at = static_cast<const std::byte*>(memory);
    for (const auto& [base, bytes] : pieces_) {
      if (at >= base && at < base + bytes) return 0;
    }
    return -1;
  }

  std::byte* allocate(std::size_t bytes) override {
    std::byte* const memory = HostDevice::allocate(bytes);
    const std::lock_guard lock(mutex_);
    pieces_[memory] = bytes;
    return memory;
  }
  void deallocate(std::byte* memory) noexcept override {
    {
      const std::lock_guard lock(mutex_);
      pieces_.erase(memory);
    }
    HostDevice::deallocate(memory);
  }

  std::shared_ptr<void> make_stream() override {
    auto lane = std::make_shared<Lane>();
    lane->worker =
        std::jthread([this, at = lane.get()](const std::stop_token& stop) { serve(*at, stop); });
    const std::lock_guard lock(mutex_);
    std::erase_if(lanes_, [](const auto& l) { return l.expired(); });
    lanes_.push_back(lane);
    return {lane.get(), [this, lane](void*) mutable { end(std::move(lane)); }};
  }
  device::Event record(device::Stream stream) override {
    const auto done = std::make_shared<bool>(false);
    put(stream, [this, done] {
      const std::lock_guard lock(mutex_);
      *done = true;
    });
    return done;
  }
  void order(const device::Event& event, device::Stream then) override {
    if (event != nullptr) put(then, [this, event] { synchronize(event); });
  }
  void order(device::Stream first, device::Stream then) override {
    if (first != then) order(record(first), then);
    ++orders;
  }
  bool is_over(const device::Event& event) override {
    const std::lock_guard lock(mutex_);
    return event == nullptr || *static_cast<bool*>(event.get());
  }
  void synchronize(const device::Event& event) override {
    if (event == nullptr) return;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return *static_cast<bool*>(event.get()); });
  }
  void launch(const device::Launch& launch, DataType type, std::uint32_t blocks,
              device::Stream stream) override {
    put(stream, [=, this] { HostDevice::launch(launch, type, blocks, stream); });
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes,
            device::Stream stream) override {
    put(stream, [=, this] { HostDevice::copy(to, from, bytes, stream); });
  }
  void overwrite(std::byte* to, std::span<const std::byte> from, device::Stream stream) override {
    put(stream, [this, to, data = std::vector(from.begin(), from.end())] { upload(to, data); });
  }
  void zero(std::byte* memory, std::size_t bytes, device::Stream stream) override {
    put(stream, [=, this] { HostDevice::zero(memory, bytes, stream); });
  }
  void read(std::byte* to, const std::byte* from, std::size_t bytes,
            device::Stream stream) override {
    put(stream, [=, this] { HostDevice::read(to, from, bytes, stream); });
    synchronize(record(stream));
  }
  void drain(const void*) noexcept override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return std::ranges::all_of(lanes_, [](const std::weak_ptr<Lane>& l) {
        const auto lane = l.lock();
        return lane == nullptr || lane->queue.empty();
      });
    });
  }

 private:
  struct Lane {
    std::deque<std::function<void()>> queue;  // its front is being done
    std::jthread worker;
  };

  void serve(Lane& lane, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return !lane.queue.empty() || stop.stop_requested(); });
      if (lane.queue.empty()) return;
      const std::function<void()> work = lane.queue.front();
      lock.unlock();
      work();
      lock.lock();
      lane.queue.pop_front();
      changed_.notify_all();
    }
  }
  void end(std::shared_ptr<Lane> lane) {
    {
      const std::lock_guard lock(mutex_);
      lane->worker.request_stop();
      changed_.notify_all();
    }
    lane->worker.join();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::weak_ptr<Lane>> lanes_;
  std::map<const std::byte*, std::size_t> pieces_;
};

/// The GPU of the test at hand, which its ranks share.
inline std::shared_ptr<StreamedGpu> the_gpu;

inline Gpus streamed_gpus() {
  return {[](const void* memory) { return the_gpu->owner(memory); }, [] { return 0; },
          [](int) -> std::shared_ptr<device::Device> { return the_gpu; }};
}

}  // namespace tutti::test
