#include "tests/ptx/ptx_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <new>
#include <span>
#include <sstream>

#include "execute/cuda/element.h"

namespace tutti::ptx {

std::string ptx_text(std::string_view source, int architecture) {
  std::ifstream file(fmt::format("{}/{}.{}.ptx", TUTTI_PTX_FOLDER, source, architecture));
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string kernel_text(DataType type, int architecture) {
  return ptx_text(name(device::kernel_type(type)), architecture);
}

std::shared_ptr<const Program> kernel_program(std::string_view text, const KernelName& name) {
  constexpr std::array<std::string_view, device::kKernelKinds> kNames{
      "run_plan", "run_words", "run_windows", "run_in_canonical_order"};
  return make_program(text, kNames[static_cast<std::size_t>(name.kind)]);
}

std::shared_ptr<const Program> kernel_program(const KernelName& name, int architecture) {
  static std::mutex mutex;
  static std::map<std::pair<KernelName, int>, std::shared_ptr<const Program>> programs;
  const std::lock_guard lock(mutex);
  auto& program = programs[{name, architecture}];
  if (!program) program = kernel_program(kernel_text(name.type, architecture), name);
  return program;
}

PtxDevice::~PtxDevice() = default;

std::byte* PtxDevice::allocate(std::size_t bytes) {
  const std::size_t whole = (bytes + 255) / 256 * 256;
  auto* const memory =
      static_cast<std::byte*>(std::aligned_alloc(256, std::max<std::size_t>(whole, 256)));
  if (memory == nullptr) throw std::bad_alloc();
  std::memset(memory, 0, whole);
  const std::lock_guard lock(machine.mutex);
  machine.memory.add(memory, std::max<std::size_t>(bytes, 1), false);
  return memory;
}

void PtxDevice::deallocate(std::byte* memory) noexcept {
  if (memory == nullptr) return;
  {
    const std::lock_guard lock(machine.mutex);
    machine.memory.remove(memory);
  }
  std::free(memory);
}

device::Control* PtxDevice::allocate_control() {
  auto* const control = new device::Control{};
  pin(reinterpret_cast<std::byte*>(control), sizeof *control);
  return control;
}

void PtxDevice::deallocate_control(device::Control* control) noexcept {
  if (control == nullptr) return;
  unpin(reinterpret_cast<std::byte*>(control));
  delete control;
}

void PtxDevice::pin(std::byte* memory, std::size_t bytes) {
  const std::lock_guard lock(machine.mutex);
  machine.memory.add(memory, bytes, false);
}

void PtxDevice::unpin(std::byte* memory) noexcept {
  const std::lock_guard lock(machine.mutex);
  machine.memory.remove(memory);
}

void PtxDevice::upload(std::byte* to, std::span<const std::byte> from) {
  if (from.empty()) return;
  const std::lock_guard lock(machine.mutex);
  std::memcpy(to, from.data(), from.size());
}

void PtxDevice::launch(const device::Launch& launch, DataType type, std::uint32_t blocks,
                       device::Stream) {
  last_blocks = blocks;
  KernelName name{type, launch.kernel()};
  const bool in_order = name.kind == device::KernelKind::canonical;
  if (in_order ? !is_float(type) : !short_kernels) name.kind = device::KernelKind::any;
  const auto own = programs.find(name);
  const auto program = own != programs.end() ? own->second : kernel_program(name, architecture_);
  if (apart) {
    for (std::uint32_t r = 0; r < launch.ranks; ++r) {
      device::Launch part = launch;
      part.ranks = 1;
      part.rank[0] = launch.rank[r];
      part.rank[0].first_block = 0;
      const auto bytes = std::as_bytes(std::span(&part, 1));
      waiting_[launch.rank[r].rank].push_back(
          {program.get(),
           {bytes.begin(), bytes.end()},
           std::vector(launch.rank[r].blocks, launch.rank[r].rank)});
    }
    return;
  }
  std::vector<std::uint32_t> gpu(blocks);
  for (std::uint32_t r = 0; r < launch.ranks; ++r) {
    const device::RankLaunch& rank = launch.rank[r];
    for (std::uint32_t b = 0; b < rank.blocks; ++b) gpu[rank.first_block + b] = rank.rank;
  }
  machine.run(*program, std::as_bytes(std::span(&launch, 1)), gpu);
}

void PtxDevice::wait() {
  std::vector<std::vector<Launched>> streams;
  for (auto& [rank, launches] : waiting_) streams.push_back(std::move(launches));
  waiting_.clear();
  if (!streams.empty()) machine.run(streams);
}

}  // namespace tutti::ptx
