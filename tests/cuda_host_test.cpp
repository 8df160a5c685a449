// The CUDA executor without a GPU: its step logic, compiled for the host, with a thread (or
// several) for each thread block.
#include <gtest/gtest.h>

#include "tests/cuda_cases.h"
#include "tests/cuda_host_device.h"

namespace tutti::test {
namespace {

class CudaHost : public ::testing::TestWithParam<int> {};

TEST_P(CudaHost, EveryAlgorithmEveryBoundary) {
  HostDevice device;
  DeviceRanks all({device}, GetParam(), kSmallSlots);
  test_every_algorithm(all, kBoundaries);
}

TEST_P(CudaHost, EveryTypeAndOperator) {
  HostDevice device;
  DeviceRanks all({device}, GetParam(), kSmallSlots);
  test_every_type_and_operator(all, 700);
}

INSTANTIATE_TEST_SUITE_P(Ranks, CudaHost, ::testing::Values(1, 2, 3, 4, 5, 8));

// Several threads in a block: barriers stand where they must (ThreadSanitizer sees if not).
TEST(CudaHostBlocks, OfSeveralThreads) {
  HostDevice device(4);
  DeviceRanks all({device}, 3, kSmallSlots);
  std::size_t k = 0;
  for (const Algorithm& a : algorithms()) {
    for (const std::size_t bytes : {std::size_t{8}, std::size_t{1500}}) {
      for (const device::Protocol p : kProtocols) {
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
