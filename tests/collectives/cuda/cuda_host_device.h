// A device whose thread blocks are threads of this process: the CUDA executor's step logic,
// compiled for the host. A launch runs all its blocks side by side and returns when they have
// ended. The threads of a block, and its warps, are emulated by fibers (fibers.h), so the same code
// runs here as on a GPU, but for the instructions themselves.
//
// Stores that a GPU orders by nothing are kept back for a while and carried out in an order that a
// seed decides; the next release store of the block comes after them all.
//
// An access that is not aligned to its width, or that leaves an allocation, ends the process.
#pragma once

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "execute/cuda/device.h"
#include "execute/cuda/step_logic.h"
#include "tests/collectives/cuda/fibers.h"

namespace tutti::test {

/// Stores of a block that are kept back at most.
inline constexpr std::size_t kMostLate = 64;

/// How a block is emulated. At least a line's threads, and whole warps.
struct BlockOfThreads {
  std::uint32_t threads = 8;
  std::uint32_t warp = 8;
};

/// One thread of a block.
class HostBlock {
 public:
  /// What a line's eight threads, or one of LL, store in one access.
  struct Late {
    std::uint64_t* words;
    std::uint32_t count;
    std::uint64_t value[16];
  };
  /// A block's.
  struct Shared {
    Shared(const BlockOfThreads& shape, std::uint64_t seed);
    BlockOfThreads shape;
    Fibers fibers;
    Fibers::Meeting block;
    struct Warp {
      Fibers::Meeting meeting;
      std::uint64_t* line[32];
      device::Pair part[32];
    };
    Warp warp[Fibers::kMost / 8];
    Late late[kMostLate + 1];
    std::size_t kept = 0;
    device::BlockShared memory;
  };
  HostBlock(Shared& shared, std::uint32_t thread)
      : shared_(shared), warp_(shared.warp[thread / shared.shape.warp]), thread_(thread) {}

  /// `body(block)` by each thread of a block.
  template <class Body>
  static void run(const BlockOfThreads& shape, std::uint64_t seed, const Body& body) {
    const auto shared = std::make_unique<Shared>(shape, seed);
    shared->fibers.run([&](std::uint32_t thread) {
      HostBlock block(*shared, thread);
      body(block, shared->memory);
      block.carry_out_all();
    });
  }

  /// Whose value each thread of the warp gets.
  std::uint32_t of_first(std::uint32_t value);
  std::uint32_t draw(std::uint64_t* counter) {
    if (thread_ % warp() != 0) return 0;
    return static_cast<std::uint32_t>(device::fetch_add_relaxed(counter, 1));
  }

  std::uint32_t thread() const { return thread_; }
  std::uint32_t threads() const { return shared_.shape.threads; }
  bool all(bool fine) {
    shared_.fibers.meet(shared_.block, threads(), fine);
    return shared_.block.all_said;
  }
  void pause();

  void store_relaxed(std::uint64_t* p, std::uint64_t value);
  void store_pair(std::uint64_t* p, device::Pair value);
  void store_release(std::uint64_t* p, std::uint64_t value) {
    carry_out_all();
    device::store_release(p, value);
  }

  std::uint32_t warp() const { return shared_.shape.warp; }
  bool any(bool said) {
    shared_.fibers.meet(warp_.meeting, warp(), said);
    return warp_.meeting.any_said;
  }
  void converge() {}  // the next two come together by themselves
  device::Pair load_line(const std::uint64_t* p);
  void store_line(std::uint64_t* p, device::Pair value);

 private:
  void keep_back(const Late& store);
  void carry_out_all();
  void carry_out(std::size_t which);
  static void put(Late& to, const Late& from);

  Shared& shared_;
  Shared::Warp& warp_;
  std::uint32_t thread_;
};

class HostDevice : public device::Device {
 public:
  std::atomic<int> launches{0}, orders{0};    // so far
  std::atomic<std::uint32_t> last_blocks{0};  // of the newest launch
  std::uint32_t side_by_side = 256;           // blocks that it says it runs side by side

  explicit HostDevice(const BlockOfThreads& shape = {}) : shape_(shape) {}
  /// Everything has been freed by then.
  ~HostDevice() override;

  /// Between pages that nobody may touch.
  std::byte* allocate(std::size_t bytes) override;
  void deallocate(std::byte* p) noexcept override;
  device::Control* allocate_control() override { return new device::Control{}; }
  void deallocate_control(device::Control* c) noexcept override { delete c; }
  void pin(std::byte*, std::size_t) override {}
  void unpin(std::byte*) noexcept override {}
  device::StreamPlace place(device::Stream stream) override {
    return {reinterpret_cast<std::uintptr_t>(stream), 0};
  }
  void upload(std::byte* to, std::span<const std::byte> from) override {
    if (!from.empty()) std::memcpy(to, from.data(), from.size());
  }
  void overwrite(std::byte* to, std::span<const std::byte> from, device::Stream) override {
    upload(to, from);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, device::Stream) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  using device::Device::order;
  void order(device::Stream, device::Stream) override { ++orders; }
  device::Mark note(device::Stream stream, const void*) override {
    return {place(stream), record(stream)};
  }
  void drain(const void*) noexcept override {}
  std::uint32_t most_blocks() const override { return side_by_side; }
  Identity identity() const override { return {1, 2}; }
  Reach reach(const Identity&) override { return Reach::whole_lines; }
  bool can_address(const std::byte*) override { return true; }
  CudaAllocation allocation(const std::byte*) override { return {}; }
  CudaExport share(const std::byte*, std::size_t) override { return {}; }
  device::Mapping map(const CudaMemoryHandle&, const FileDescriptor&) override { return {}; }

  void launch(const device::Launch& launch, DataType type, std::uint32_t blocks,
              device::Stream) override {
    const auto number = static_cast<std::uint64_t>(++launches);
    last_blocks = blocks;
    std::vector<std::jthread> threads;
    for (std::uint32_t b = 0; b < blocks; ++b) {
      threads.emplace_back([this, &launch, type, b, seed = number << 16 | b] {
        HostBlock::run(shape_, seed, [&](HostBlock& block, device::BlockShared& shared) {
          run(block, shared, launch, type, b);
        });
      });
    }
  }

 private:
  static void run(HostBlock& block, device::BlockShared& shared, const device::Launch& launch,
                  DataType type, std::uint32_t index);

  BlockOfThreads shape_;
  std::mutex allocations_mutex_;
  std::map<const std::byte*, std::span<std::byte>> allocations_;  // with those pages
};

}  // namespace tutti::test
