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
  HostDevice device({64, 32});
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

TEST(CudaProtocols, AreReadFromText) {
  using device::protocols_from;
  const auto text = [](std::string_view list) {
    const device::Protocols p = protocols_from(list);
    return std::string(p.simple ? "s" : "") + (p.ll ? "l" : "") + (p.ll128 ? "L" : "");
  };
  EXPECT_EQ(text(""), "slL");
  EXPECT_EQ(text("LL"), "l");
  EXPECT_EQ(text("Simple,ll128"), "sL");
  EXPECT_EQ(text("^LL128"), "sl");
  EXPECT_EQ(text("^ll,simple"), "L");
  for (const char* bad : {"^", ",", "ll,", "ll ", "ll:2", "LL64", "^ll,ll128,simple"}) {
    EXPECT_THROW(protocols_from(bad), Error) << bad;
  }
}

TEST(CudaProtocols, AreChosenOfThoseAllowed) {
  PlanHeader plan;
  plan.ranks = 2;
  device::Traits t;
  t.most_blocks = 8;
  const auto chosen = [&](std::size_t bytes, std::string_view allowed, bool whole_lines = true) {
    t.bytes = t.block = bytes;
    t.allowed = device::protocols_from(allowed);
    t.whole_lines = whole_lines;
    return device::choose(plan, t, kSmallSlots).protocol;
  };
  using enum device::Protocol;
  EXPECT_EQ(chosen(8, ""), ll);
  EXPECT_EQ(chosen(8, "^ll"), ll128);
  EXPECT_EQ(chosen(8, "^ll", false), simple);
  EXPECT_EQ(chosen(1 << 20, ""), ll128);
  EXPECT_EQ(chosen(1 << 20, "^ll128"), simple);
  EXPECT_EQ(chosen(1 << 20, "", false), simple);
  EXPECT_EQ(chosen(1 << 30, ""), simple);
  EXPECT_EQ(chosen(1 << 30, "ll"), ll);
  EXPECT_EQ(chosen(1 << 30, "ll,ll128"), ll128);
  EXPECT_EQ(chosen(8, "ll128", false), simple) << "which every link can do";
}

}  // namespace
}  // namespace tutti::test
