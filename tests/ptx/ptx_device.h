// The device of the tests whose kernels are the PTX that ships: each launch runs on a Machine, all
// its blocks side by side, and returns when they have ended. What the PTX must not do throws Fault
// from launch().
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "execute/cuda/device.h"
#include "execute/cuda/launch.h"
#include "tests/ptx/machine.h"

namespace tutti::ptx {

/// The PTX of a source for `architecture` (80, 90, 100), as the build made it; empty if it made
/// none.
std::string ptx_text(std::string_view source, int architecture);
/// That of a type's kernel.
std::string kernel_text(DataType type, int architecture);
/// Which of a type's kernels. Floats alone have one of the canonical order.
struct KernelName {
  DataType type = DataType::float32;
  device::KernelKind kind = device::KernelKind::any;
  auto operator<=>(const KernelName&) const = default;
};
std::shared_ptr<const Program> kernel_program(std::string_view text, const KernelName& name);
/// Of the build's PTX; decoded once in the process.
std::shared_ptr<const Program> kernel_program(const KernelName& name, int architecture);

class PtxDevice : public device::Device {
 public:
  explicit PtxDevice(std::uint64_t seed = 1, int architecture = 90)
      : machine(seed), architecture_(architecture) {}
  ~PtxDevice() override;

  Machine machine;
  /// Instead of the build's.
  std::map<KernelName, std::shared_ptr<const Program>> programs;
  std::atomic<std::uint32_t> last_blocks{0};
  /// Each rank's part of a launch is a launch of its own, on a stream of the rank's, and nothing
  /// begins before wait(): then ranks begin when the seed says, and may be launches apart.
  bool apart = false;
  bool canonical = false;     // the trials ask for the canonical order
  bool short_kernels = true;  // else the kernel that can do all walks their plans too
  void wait();

  std::byte* allocate(std::size_t bytes) override;
  void deallocate(std::byte* memory) noexcept override;
  device::Control* allocate_control() override;
  void deallocate_control(device::Control* control) noexcept override;
  void pin(std::byte* memory, std::size_t bytes) override;
  void unpin(std::byte* memory) noexcept override;
  device::StreamPlace place(device::Stream) override { return {}; }
  void upload(std::byte* to, std::span<const std::byte> from) override;
  void overwrite(std::byte* to, std::span<const std::byte> from, device::Stream) override {
    upload(to, from);
  }
  void copy(std::byte* to, const std::byte* from, std::size_t bytes, device::Stream) override {
    upload(to, {from, bytes});
  }
  using device::Device::order;
  void order(device::Stream, device::Stream) override {}
  device::Mark note(device::Stream, const void*) override { return {}; }
  void drain(const void*) noexcept override {}
  std::uint32_t most_blocks() const override { return 256; }
  Identity identity() const override { return {1, 3}; }
  Reach reach(const Identity&) override { return Reach::whole_lines; }
  bool can_address(const std::byte*) override { return true; }
  CudaAllocation allocation(const std::byte*) override { return {}; }
  CudaExport share(const std::byte*, std::size_t) override { return {}; }
  device::Mapping map(const CudaMemoryHandle&, const FileDescriptor&) override { return {}; }

  /// Each rank's blocks count as a GPU of its own.
  void launch(const device::Launch& launch, DataType type, std::uint32_t blocks,
              device::Stream) override;

 private:
  int architecture_;
  std::map<std::uint32_t, std::vector<Launched>> waiting_;  // by rank
};

}  // namespace tutti::ptx
