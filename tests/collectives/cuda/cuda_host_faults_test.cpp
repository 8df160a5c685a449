// What the CUDA executor does when something is wrong, or goes on for very long; on the host.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <stop_token>
#include <thread>
#include <vector>

#include "execute/cuda/plan_cache.h"
#include "tests/collectives/cuda/cuda_host_device.h"
#include "tests/collectives/cuda/cuda_matrix.h"

namespace tutti::test {
namespace {

using device::Executor;
using device::Protocol;
using device::SegmentShape;
using namespace std::chrono_literals;

DeviceCase all_reduce(const char* algorithm, std::size_t bytes, Protocol protocol) {
  DeviceCase c;
  c.algorithm = find_algorithm(Collective::all_reduce, algorithm);
  c.type = DataType::int32;
  c.kind = ReduceKind::sum;
  c.bytes = bytes;
  c.protocol = protocol;
  return c;
}

DeviceCase ring(std::size_t bytes, Protocol protocol) {
  return all_reduce("ring", bytes, protocol);
}

class CudaHostFaults : public ::testing::TestWithParam<Protocol> {
 protected:
  /// Launches all ranks but one, and says how the kernels ended.
  std::optional<Error> without(int missing, const DeviceCase& c) {
    auto bound = all.bind(c);
    bound.upload();
    bound.launches.erase(bound.launches.begin() + missing);
    all.launch(bound, c.type);
    for (int r = 0; r < 3; ++r) {
      if (auto failure = all.executor(r).failure()) return failure;
    }
    return std::nullopt;
  }

  HostDevice device;
  DeviceRanks all{{device}, 3, kSmallSlots};
};

TEST_P(CudaHostFaults, DeadlineLeavesTheWait) {
  for (int r = 0; r < 3; ++r) all.executor(r).set_limits({50ms});
  const auto failure = without(1, ring(3000, GetParam()));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code(), ErrorCode::timed_out);
  EXPECT_NE(std::string(failure->what()).find("operation #1 (lane 0, copy 0, tile 0, step "),
            std::string::npos)
      << failure->what();
  // A rank that comes later does not wait at all.
  const auto began = std::chrono::steady_clock::now();
  for (int r = 0; r < 3; ++r) all.executor(r).set_limits({0ns});
  for (int r = 0; r < 3; ++r) all.executor(r).abort();
  without(1, ring(3000, GetParam()));
  EXPECT_LT(std::chrono::steady_clock::now() - began, 5s);
}

/// By LL, the steps that send and receive are one exchange.
TEST_P(CudaHostFaults, AReportNamesTheStepThatReceives) {
  for (int r = 0; r < 3; ++r) all.executor(r).set_limits({50ms});
  const auto failure = without(1, all_reduce("one_shot", 600, GetParam()));
  ASSERT_TRUE(failure);
  EXPECT_NE(std::string(failure->what()).find("step 1) on its GPU for rank 1 to send a message"),
            std::string::npos)
      << failure->what();
}

TEST_P(CudaHostFaults, ALongWaitIsToldOnce) {
  for (int r = 0; r < 3; ++r) all.executor(r).set_limits({1500ms, 50ms});
  std::jthread watcher([&](const std::stop_token& stop) {
    std::vector<device::LateRank> told;
    while (!stop.stop_requested()) {
      if (auto late = all.executor(2).late()) told.push_back(std::move(*late));
      std::this_thread::sleep_for(1ms);
    }
    ASSERT_EQ(told.size(), 1U);
    EXPECT_NE(told[0].text.find("rank 2 has been waiting in operation #1 (lane 0, copy "),
              std::string::npos)
        << told[0].text;
    EXPECT_NE(told[0].text.find(fmt::format("for rank {} to ", told[0].rank)), std::string::npos)
        << told[0].text;
  });
  const auto failure = without(1, ring(3000, GetParam()));
  ASSERT_TRUE(failure);
  EXPECT_EQ(failure->code(), ErrorCode::timed_out);
  EXPECT_FALSE(all.executor(1).late()) << "it was not launched";
}

TEST_P(CudaHostFaults, AbortLeavesTheWait) {
  for (int r = 0; r < 3; ++r) all.executor(r).set_limits({0ns});
  std::jthread aborter([&] {
    std::this_thread::sleep_for(50ms);
    for (int r = 0; r < 3; ++r) all.executor(r).abort();
  });
  EXPECT_FALSE(without(2, ring(3000, GetParam())));
}

TEST_P(CudaHostFaults, CallsThatDoNotMatch) {
  const DeviceCase longer = ring(900, GetParam());
  const DeviceCase shorter = ring(600, GetParam());
  auto a = all.bind(longer);
  a.upload();
  auto b = all.bind(shorter);
  // The ranks that are not told wait until then.
  for (int r = 0; r < 3; ++r) all.executor(r).set_limits({500ms});
  a.launches[1] = b.launches[1];
  all.launch(a, DataType::int32);
  bool found = false;
  for (int r = 0; r < 3; ++r) {
    const auto failure = all.executor(r).failure();
    found = found || (failure && failure->code() == ErrorCode::mismatch);
  }
  EXPECT_TRUE(found);
}

// A captured graph repeats the very same launch.
TEST_P(CudaHostFaults, RepeatsWithoutReset) {
  const auto bound = all.bind(ring(1500, GetParam()));
  for (int i = 0; i < 1000; ++i) {
    if (i % 100 == 0) bound.upload();
    all.launch(bound, DataType::int32);
    if (i % 100 != 0) continue;
    ASSERT_EQ(bound.count_wrong(), 0U) << i;
  }
  all.throw_failure();
}

/// As if `number` messages had been exchanged on every connection.
void start_at(Executor& e, const SegmentShape& shape, std::uint64_t number) {
  std::byte* const segment = e.segment();
  for (std::uint32_t channel = 0; channel < shape.channels; ++channel) {
    for (std::uint32_t peer = 0; peer < shape.ranks; ++peer) {
      const std::size_t i = shape.index(peer, channel) * sizeof number;
      std::memcpy(segment + shape.sent() + i, &number, sizeof number);
      std::memcpy(segment + shape.received() + i, &number, sizeof number);
      std::memcpy(segment + shape.credit(peer, channel), &number, sizeof number);
    }
  }
}

// Where LL's 32-bit flags come round, and where slots are cleaned. Every slot has been used before.
TEST_P(CudaHostFaults, MessageNumbersComeRound) {
  for (const std::uint64_t number : {device::kMessagesPerCleaning - 6, (std::uint64_t{1} << 32) - 6,
                                     (std::uint64_t{1} << 32) - 5}) {
    DeviceRanks fresh({device}, 3, kSmallSlots);
    for (int r = 0; r < 3; ++r) start_at(fresh.executor(r), fresh.shape(), number);
    for (int i = 0; i < 10; ++i) {
      const DeviceCase c = ring(i % 2 == 0 ? 1500 : 30, GetParam());
      ASSERT_EQ(fresh.run(c), 0U) << number << " " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Protocols, CudaHostFaults, ::testing::ValuesIn(kProtocols));

// Ranks that are launched one by one, as processes do, at different times.
TEST(CudaHost, SeparateLaunches) {
  HostDevice device;
  DeviceRanks all({device}, 4, kSmallSlots);
  for (const Protocol p : kProtocols) {
    const DeviceCase c = ring(4000, p);
    const auto bound = all.bind(c);
    bound.upload();
    {
      std::vector<std::jthread> launchers;
      for (std::size_t r = 0; r < bound.launches.size(); ++r) {
        launchers.emplace_back([&, r] {
          std::this_thread::sleep_for(r * 3ms);
          device::enqueue(device, {&bound.launches[r], 1}, all.shape(), c.type, nullptr);
        });
      }
    }
    EXPECT_EQ(bound.count_wrong(), 0U);
    all.throw_failure();
  }
}

// A peer that names memory outside of its windows.
TEST(CudaHost, PeersAreNotTrustedWithMemory) {
  HostDevice device;
  DeviceRanks all({device}, 2, kSmallSlots);
  DeviceCase c;
  c.algorithm = find_algorithm(Collective::all_gather, "direct_window");
  c.bytes = 1000;
  for (const std::uint32_t id : {7U, 1U << 20}) {
    DeviceRanks fresh({device}, 2, kSmallSlots);
    auto bound = fresh.bind(c);
    bound.upload();
    bound.launches[1].addresses.window[0] = id;
    bound.launches[1].addresses.at[0] = 16;
    for (int r = 0; r < 2; ++r) fresh.executor(r).set_limits({200ms});
    fresh.launch(bound, c.type);
    const auto failure = fresh.executor(0).failure();
    ASSERT_TRUE(failure);
    EXPECT_NE(std::string(failure->what()).find("outside of rank 1's windows"), std::string::npos)
        << failure->what();
  }
  // A window that is known, and large enough.
  DeviceRanks fresh({device}, 2, kSmallSlots);
  auto bound = fresh.bind(c);
  bound.upload();
  std::byte* const in = bound.launches[1].in;
  fresh.executor(0).add_window(1, 3, in - 64, 1064);
  bound.launches[1].addresses.window[0] = 3;
  bound.launches[1].addresses.at[0] = 64;
  fresh.launch(bound, c.type);
  EXPECT_EQ(bound.count_wrong(), 0U);
  fresh.throw_failure();
}

// Counts that never repeat must not fill the device's memory.
TEST(CudaHost, ForgetsPlans) {
  HostDevice device;
  DeviceRanks all({device}, 2, kSmallSlots);
  DeviceCase c = ring(0, Protocol::ll);
  for (std::size_t i = 0; i < 1500; ++i) {
    c.bytes = 4 * i;
    const auto bound = all.bind(c);
    if (i % 300 == 299) {
      bound.upload();
      all.launch(bound, c.type);
      ASSERT_EQ(bound.count_wrong(), 0U);
    }
  }
  EXPECT_LE(all.executor(0).plans(), 1024U);
}

// On another stream, kernels of the forgotten plan may not have run yet.
TEST(CudaHost, MemoryOfAForgottenPlanStaysOnItsStream) {
  struct Counting final : HostDevice {
    void overwrite(std::byte* to, std::span<const std::byte> from, device::Stream) override {
      ++overwritten;
      upload(to, from);
    }
    int overwritten = 0;
  } device;
  device::PlanCache plans(device);
  char streams[2];
  std::uint64_t key = 0;
  const auto add = [&](int stream) {
    (void)plans.get(
        {key++}, [] { return std::vector<std::byte>(sizeof(device::PlanBlock)); },
        &streams[stream]);
  };
  while (plans.size() < 1024) add(0);
  add(1);
  EXPECT_EQ(device.overwritten, 0);
  add(0);
  EXPECT_EQ(device.overwritten, 1);
}

TEST(CudaHost, RefusesWhatDoesNotFit) {
  HostDevice device;
  SegmentShape narrow = kSmallSlots;
  narrow.slots = 1;
  DeviceRanks all({device}, 3, narrow);
  try {
    all.bind(ring(100, Protocol::simple));
    FAIL() << "two slots are needed";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(e.what()).find("slots"), std::string::npos) << e.what();
  }
  EXPECT_THROW(Executor(device, 0, kSmallSlots, 1000), Error);
}

}  // namespace
}  // namespace tutti::test
