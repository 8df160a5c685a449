// The CUDA executor without a GPU: its step logic, compiled for the host, with a thread (or
// several) for each thread block.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/cuda_host_device.h"
#include "tests/cuda_matrix.h"

namespace tutti::test {
namespace {

using device::Protocol;
using device::SegmentShape;
using namespace std::chrono_literals;

// Small slots, so that small messages meet every boundary: LL holds 512 bytes of data, LL128 960,
// Simple 512.
constexpr SegmentShape kShape{
    .channels = 8, .slots = 4, .ll_bytes = 1024, .ll128_bytes = 1024, .simple_bytes = 512};
constexpr std::size_t kSizes[] = {0,   1,   7,   8,   9,   63,  64,  119, 120,  121, 128,
                                  255, 256, 257, 512, 513, 959, 960, 961, 2049, 5000};
constexpr Protocol kProtocols[] = {Protocol::simple, Protocol::ll, Protocol::ll128};

DeviceUnderTest on(HostDevice& device) {
  return {device,
          [](std::byte* to, const std::byte* from, std::size_t n) {
            if (n > 0) std::memcpy(to, from, n);
          },
          [] {}};
}

/// The k-th of everything that a test does not vary itself.
DeviceCase nth(const Algorithm& a, std::size_t k, int ranks) {
  DeviceCase c;
  c.algorithm = &a;
  c.type = static_cast<DataType>(k % kDataTypes);
  if (is_reduction(a.collective)) {
    c.kind = static_cast<ReduceKind>(k / kDataTypes % kReduceKinds);
  }
  c.root = is_rooted(a.collective) ? static_cast<int>(k) % ranks : 0;
  c.in_place = has_in_place(a.collective) && k % 2 == 1;
  c.protocol = kProtocols[k / 2 % 3];
  c.copies = static_cast<std::uint32_t>(1 + k % 3);
  c.misalign = k % 5 == 0 ? 1 : 0;
  return c;
}

class CudaHost : public ::testing::TestWithParam<int> {};

TEST_P(CudaHost, EveryAlgorithmEveryBoundary) {
  const int ranks = GetParam();
  HostDevice device;
  DeviceRanks all(on(device), ranks, kShape);
  std::size_t k = 0;
  for (const Algorithm& a : algorithms()) {
    for (const std::size_t bytes : kSizes) {
      DeviceCase c = nth(a, ++k, ranks);
      c.bytes = bytes;
      ASSERT_EQ(all.run(c), 0U) << c.text(ranks);
    }
  }
}

TEST_P(CudaHost, EveryTypeAndOperator) {
  const int ranks = GetParam();
  HostDevice device;
  DeviceRanks all(on(device), ranks, kShape);
  std::size_t k = 0;
  for (const char* name : {"ring", "two_shot_window", "one_shot"}) {
    for (int type = 0; type < kDataTypes; ++type) {
      for (int kind = 0; kind < kReduceKinds; ++kind) {
        DeviceCase c = nth(*find_algorithm(Collective::all_reduce, name), ++k, ranks);
        c.type = static_cast<DataType>(type);
        c.kind = static_cast<ReduceKind>(kind);
        c.bytes = 700 + k;
        ASSERT_EQ(all.run(c), 0U) << c.text(ranks);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, CudaHost, ::testing::Values(1, 2, 3, 4, 5, 8));

// Several threads in a block: barriers stand where they must (ThreadSanitizer sees if not).
TEST(CudaHostBlocks, OfSeveralThreads) {
  HostDevice device(4);
  DeviceRanks all(on(device), 3, kShape);
  std::size_t k = 0;
  for (const Algorithm& a : algorithms()) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{1500}}) {
      for (const Protocol p : kProtocols) {
        DeviceCase c = nth(a, ++k, 3);
        c.protocol = p;
        c.bytes = bytes;
        ASSERT_EQ(all.run(c), 0U) << c.text(3);
      }
    }
  }
}

}  // namespace
}  // namespace tutti::test
