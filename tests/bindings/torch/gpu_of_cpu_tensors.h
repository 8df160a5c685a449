// A TorchGpu without a GPU: threads stand in for it (cuda_host_device.h). Its memory is the host's,
// so the tensors over it are CPU tensors; all else takes the way of a GPU: collectives and messages
// on streams, memory of the device, torch's arithmetic on it.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <chrono>
#include <cstddef>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "bindings/torch/torch_gpu.h"
#include "tests/collectives/cuda/cuda_host_device.h"

namespace tutti::test {

/// Kernels of a stream run on threads, one after the other. All else is done at once, and who is
/// told to wait for a stream has waited on return. Knows its memory.
class GpuAtOnce final : public HostDevice {
 public:
  std::byte* allocate(std::size_t bytes) override {
    std::byte* const memory = HostDevice::allocate(bytes);
    add(memory, bytes);
    return memory;
  }
  void deallocate(std::byte* memory) noexcept override {
    remove(memory);
    HostDevice::deallocate(memory);
  }
  /// Memory of another owner counts as the GPU's, or no longer does.
  void add(const void* memory, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    pieces_[static_cast<const std::byte*>(memory)] = bytes;
  }
  void remove(const void* memory) {
    const std::lock_guard lock(mutex_);
    pieces_.erase(static_cast<const std::byte*>(memory));
  }
  bool owns(const void* memory) {
    const std::lock_guard lock(mutex_);
    const auto* const at = static_cast<const std::byte*>(memory);
    auto piece = pieces_.upper_bound(at);
    return piece != pieces_.begin() && at < (--piece)->first + piece->second;
  }

  void launch(const device::Launch& launch, DataType type, std::uint32_t blocks,
              device::Stream stream) override {
    const std::lock_guard lock(mutex_);
    Done& last = last_[stream];
    last = std::async(std::launch::async, [=, this, before = last] {
             if (before.valid()) before.wait();
             HostDevice::launch(launch, type, blocks, stream);
           }).share();
  }
  device::Event record(device::Stream stream) override {
    const std::lock_guard lock(mutex_);
    const auto last = last_.find(stream);
    return last == last_.end() ? nullptr : std::make_shared<Done>(last->second);
  }
  bool is_over(const device::Event& event) override {
    return event == nullptr || static_cast<Done*>(event.get())->wait_for(std::chrono::seconds(0)) ==
                                   std::future_status::ready;
  }
  void synchronize(const device::Event& event) override {
    if (event != nullptr) static_cast<Done*>(event.get())->wait();
  }
  void order(const device::Event& event, device::Stream) override { synchronize(event); }
  void order(device::Stream first, device::Stream) override {
    ++orders;
    synchronize(record(first));
  }
  void drain(const void*) noexcept override {
    const std::lock_guard lock(mutex_);
    for (const auto& [stream, last] : last_) last.wait();
  }

 private:
  using Done = std::shared_future<void>;

  std::mutex mutex_;
  std::map<const std::byte*, std::size_t> pieces_;
  std::map<device::Stream, Done> last_;
};

/// That of the test at hand.
inline std::shared_ptr<GpuAtOnce> the_gpu;

inline Gpus gpus() {
  return {[](const void* memory) { return the_gpu->owns(memory) ? 0 : -1; }, [] { return 0; },
          [](int) -> std::shared_ptr<device::Device> { return the_gpu; }};
}

class GpuOfCpuTensors final : public libtorch::TorchGpu {
 public:
  GpuOfCpuTensors() : TorchGpu(gpus(), 0, c10::kCPU) {}
  Stream current() override { return this; }
};

/// While there is a GPU of the test, memory of torch's new tensors counts as its own. For as long
/// as the program runs.
class TensorsOfTheGpu final : public c10::Allocator {
 public:
  static void use() { (void)instance(); }

  c10::DataPtr allocate(std::size_t bytes) override {
    Kept kept{torchs_->allocate(bytes), bytes > 0 ? the_gpu : nullptr};
    void* const data = kept.memory.get();
    if (data == nullptr) return std::move(kept.memory);
    if (kept.gpu != nullptr) kept.gpu->add(data, bytes);
    const std::lock_guard lock(mutex_);
    kept_.emplace(data, std::move(kept));
    return {data, data, &end, c10::kCPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &end; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  struct Kept {
    c10::DataPtr memory;
    std::shared_ptr<GpuAtOnce> gpu;
  };
  TensorsOfTheGpu() : torchs_(c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, 255); }
  static TensorsOfTheGpu& instance() {
    static auto* const allocator = new TensorsOfTheGpu;  // tensors may end with the process
    return *allocator;
  }
  static void end(void* data) {
    TensorsOfTheGpu& self = instance();
    std::unique_lock lock(self.mutex_);
    const auto kept = self.kept_.extract(data);
    lock.unlock();
    if (kept.empty()) return self.torchs_->raw_deallocate(data);  // older than this allocator
    if (kept.mapped().gpu != nullptr) kept.mapped().gpu->remove(data);
  }

  c10::Allocator* const torchs_;
  std::mutex mutex_;
  std::map<void*, Kept> kept_;
};

}  // namespace tutti::test
