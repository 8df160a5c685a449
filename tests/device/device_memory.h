// Communicators whose GPU memory is the host's: threads are in the GPU's place
// (cuda_host_device.h).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/impl.h"
#include "tests/collectives/cuda/cuda_host_device.h"

namespace tutti::test {

inline constexpr DataType kType = DataType::int32;
inline constexpr std::size_t kCount = 5000;

/// The device of the test at hand.
inline std::shared_ptr<HostDevice> the_device;
/// Memory from here on is another GPU's, or the host's.
inline int owner_of_all = 0;

inline Gpus thread_gpus() {
  return {[](const void*) { return owner_of_all; }, [] { return 0; },
          [](int) -> std::shared_ptr<device::Device> { return the_device; }};
}

using Data = std::vector<std::int32_t>;

inline Data input_of(int rank, std::size_t count = kCount) {
  Data data(count);
  for (std::size_t i = 0; i < count; ++i) {
    data[i] = static_cast<std::int32_t>(1000 * (rank + 1) + static_cast<int>(i) * 7);
  }
  return data;
}

inline Data sum_of(int ranks) {
  Data sum(kCount);
  for (int r = 0; r < ranks; ++r) {
    const Data in = input_of(r);
    for (std::size_t i = 0; i < kCount; ++i) sum[i] += in[i];
  }
  return sum;
}

inline Call all_reduce_call(const Data& in, Data& out) {
  Call call;
  call.collective = Collective::all_reduce;
  call.in = in.data();
  call.out = out.data();
  call.count = in.size();
  call.type = kType;
  return call;
}

class OnDeviceMemory : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    the_device = std::make_shared<HostDevice>();
    owner_of_all = 0;
  }
  void TearDown() override { the_device.reset(); }

  static std::vector<Communicator> ranks(int count, const Options& options = {}) {
    std::vector<Communicator> all = Communicator::create_local(count, options);
    for (Communicator& c : all) c.impl().gpus = thread_gpus();
    return all;
  }
  /// `body` for every rank on a thread of its own.
  static void in_threads(std::vector<Communicator>& all,
                         const std::function<void(Communicator&)>& body) {
    std::vector<std::jthread> threads;
    for (Communicator& c : all) threads.emplace_back([&] { body(c); });
  }
  /// A stream for each rank; the numbers do not matter.
  static void* stream(int rank) {
    return reinterpret_cast<void*>(0x1000 + 16 * std::intptr_t{rank});
  }
};

inline std::string refusal(const std::function<void()>& body, ErrorCode code) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), code) << e.what();
    return e.what();
  }
  return "nothing was thrown";
}

}  // namespace tutti::test
