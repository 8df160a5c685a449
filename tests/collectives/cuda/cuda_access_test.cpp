// Where a GPU faults, the host's device ends the process: at accesses that are not aligned to their
// width, as those of LL128 once were, and at such that leave an allocation.
#include <gtest/gtest.h>

#include <atomic>

#include "tests/collectives/cuda/cuda_combine_cases.h"
#include "tests/collectives/cuda/cuda_host_device.h"

namespace tutti::test {
namespace {

using device::Pair;
using device::Target;

class CudaAccess : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  HostDevice device;
};

constexpr std::uint32_t kLineData = 120;  // of a line, once
constexpr std::uint32_t kAccessThreads = 16;

/// `access(offset, bytes)` for a thread's parts of `bytes` in lines of 120, as LL128 once cut them:
/// eight threads a line, 16 bytes each and 8 for the last; its other half was the flag.
template <class Access>
void each_part(std::uint32_t thread, std::uint32_t bytes, const Access& access) {
  const std::uint32_t part = thread % 8;
  for (std::uint32_t at = thread / 8 * kLineData; at < bytes;
       at += kAccessThreads / 8 * kLineData) {
    access(at + part * 16, part == 7 ? 8 : 16);
  }
}

/// The width of an access follows from the base, as it once did.
std::uint32_t width_by_base(const Target& t, std::uint32_t, std::uint32_t bytes) {
  return t.unit() == 16 ? bytes : 8;
}
/// From the address itself.
std::uint32_t width_by_address(const Target& t, std::uint32_t at, std::uint32_t bytes) {
  const Target here{.pointer = t.pointer + at};
  return here.unit() == 16 ? bytes : 8;
}

/// Reads lines of 120 bytes; what an access is wide is up to `width`.
template <class Width>
std::uint64_t read_lines(HostDevice& device, std::uint32_t bytes, const Width& width) {
  const Target t{.pointer = device.allocate(bytes)};
  std::atomic<std::uint64_t> sum = 0;
  HostBlock::run({kAccessThreads, 8}, 1, [&](HostBlock& block, device::BlockShared&) {
    each_part(block.thread(), bytes, [&](std::uint32_t at, std::uint32_t n) {
      if (width(t, at, n) == 16) {
        sum += device::load_16(t.pointer + at).first;
      } else {
        for (std::uint32_t i = 0; i < n; i += 8) {
          sum += device::load<std::uint64_t>(t.pointer + at + i);
        }
      }
    });
  });
  device.deallocate(t.pointer);
  return sum;
}

TEST_F(CudaAccess, LinesOf120BytesReadByTheBasesWidthFault) {
  EXPECT_EQ(read_lines(device, kLineData, width_by_base), 0U) << "the first line is aligned";
  EXPECT_EQ(read_lines(device, 16 * kLineData, width_by_address), 0U);
  EXPECT_DEATH(read_lines(device, 2 * kLineData, width_by_base), "a device faults here: 16 bytes");
}

TEST_F(CudaAccess, WritesAtOddAddressesFault) {
  std::byte* const memory = device.allocate(256);
  for (const std::size_t at : {std::size_t{0}, std::size_t{16}}) device::store_16(memory + at, {});
  EXPECT_DEATH(device::store_16(memory + 120, {}), "a device faults here: 16 bytes");
  EXPECT_DEATH(device::store(memory + 2, std::uint32_t{1}), "a device faults here: 4 bytes");
  auto* const words = reinterpret_cast<std::uint64_t*>(memory);
  HostBlock::run({8, 8}, 1, [&](HostBlock& block, device::BlockShared&) {
    block.store_line(words + 2 * block.thread(), {});
  });
  // A line's address is a multiple of 128, not of 16 alone.
  EXPECT_DEATH(HostBlock::run({8, 8}, 1,
                              [&](HostBlock& block, device::BlockShared&) {
                                block.store_line(words + 2 + 2 * block.thread(), {});
                              }),
               "a device faults here: 128 bytes");
  device.deallocate(memory);
}

TEST_F(CudaAccess, WhatLeavesAnAllocationFaults) {
  std::byte* const memory = device.allocate(4096);
  device::store(memory + 4095, std::uint8_t{1});
  EXPECT_DEATH(device::store(memory + 4096, std::uint8_t{1}), "");
  EXPECT_DEATH(device::store(memory - 1, std::uint8_t{1}), "");
  EXPECT_DEATH(EXPECT_EQ(device::load_16(memory + 4096).first, 0U), "");
  device.deallocate(memory);
  EXPECT_DEATH(device::store(memory, std::uint8_t{1}), "") << "after it was freed";
}

}  // namespace
}  // namespace tutti::test
