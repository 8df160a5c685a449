// A device whose thread blocks are threads of this process: the CUDA executor's step logic,
// compiled for the host. A launch runs all its blocks side by side and returns when they have
// ended.
#pragma once

#include <sched.h>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "collectives/execute/cuda/device.h"
#include "collectives/execute/cuda/step_logic.h"

namespace tutti::test {

/// One thread of a block of `threads`.
class HostBlock {
 public:
  struct Shared {
    explicit Shared(std::uint32_t n) : barrier(n) {}
    std::barrier<> barrier;
    std::atomic<bool> refused[2] = {false, false};
    device::BlockShared memory;
  };
  HostBlock(Shared& shared, std::uint32_t thread, std::uint32_t threads)
      : shared_(shared), thread_(thread), threads_(threads) {}

  std::uint32_t thread() const { return thread_; }
  std::uint32_t threads() const { return threads_; }
  bool all(bool fine) {
    if (threads_ == 1) return fine;
    // Two flags in turn: the one not in use is put back while nobody can be looking at it.
    std::atomic<bool>& refused = shared_.refused[turn_ % 2];
    if (!fine) refused.store(true, std::memory_order_relaxed);
    shared_.barrier.arrive_and_wait();
    const bool result = !refused.load(std::memory_order_relaxed);
    if (thread_ == 0) shared_.refused[(turn_ + 1) % 2].store(false, std::memory_order_relaxed);
    ++turn_;
    shared_.barrier.arrive_and_wait();
    return result;
  }
  std::uint64_t nanoseconds() const {
    return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  void pause() { sched_yield(); }

 private:
  Shared& shared_;
  std::uint32_t thread_, threads_;
  std::uint32_t turn_ = 0;
};

class HostDevice : public device::Device {
 public:
  std::atomic<int> launches{0}, orders{0};    // so far
  std::atomic<std::uint32_t> last_blocks{0};  // of the newest launch
  std::uint32_t side_by_side = 256;           // blocks that it says it runs side by side

  explicit HostDevice(std::uint32_t threads_per_block = 1) : threads_(threads_per_block) {}

  std::byte* allocate(std::size_t bytes) override {
    void* p = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (p == nullptr) throw std::bad_alloc();
    std::memset(p, 0, bytes);
    return static_cast<std::byte*>(p);
  }
  void deallocate(std::byte* p) noexcept override { std::free(p); }
  device::Control* allocate_control() override { return new device::Control{}; }
  void deallocate_control(device::Control* c) noexcept override { delete c; }
  void pin(std::byte*, std::size_t) override {}
  void unpin(std::byte*) noexcept override {}
  bool is_capturing(device::Stream) override { return false; }
  void upload(std::byte* to, std::span<const std::byte> from) override {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
  }
  void overwrite(std::byte* to, std::span<const std::byte> from, device::Stream) override {
    upload(to, from);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, device::Stream) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void order(device::Stream, device::Stream) override { ++orders; }
  void drain() noexcept override {}
  std::uint32_t most_blocks() const override { return side_by_side; }
  Identity identity() const override { return {1, 2}; }
  Reach reach(const Identity&) override { return Reach::whole_lines; }
  bool can_address(const std::byte*) override { return true; }
  CudaAllocation allocation(const std::byte*) override { return {}; }
  CudaExport share(const std::byte*, std::size_t) override { return {}; }
  device::Mapping map(const CudaMemoryHandle&, const FileDescriptor&) override { return {}; }

  void launch(const device::Launch& launch, DataType type, std::uint32_t blocks,
              device::Stream) override {
    ++launches;
    last_blocks = blocks;
    std::vector<std::unique_ptr<HostBlock::Shared>> shared;
    std::vector<std::jthread> threads;
    for (std::uint32_t b = 0; b < blocks; ++b) {
      shared.push_back(std::make_unique<HostBlock::Shared>(threads_));
      for (std::uint32_t t = 0; t < threads_; ++t) {
        threads.emplace_back([&launch, type, b, t, n = threads_, s = shared.back().get()] {
          HostBlock block(*s, t, n);
          run(block, s->memory, launch, type, b);
        });
      }
    }
  }

 private:
  static void run(HostBlock& block, device::BlockShared& shared, const device::Launch& launch,
                  DataType type, std::uint32_t index);

  std::uint32_t threads_;
};

}  // namespace tutti::test
