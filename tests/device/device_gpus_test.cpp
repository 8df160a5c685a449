// Ranks of one process on several GPUs, with threads in the GPUs' place (queued_gpus.h): one
// thread that calls for all of them, which GPU a rank is on, and what is refused.
// device_processes_test has ranks with threads of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "device/team.h"
#include "tests/device/queued_gpus.h"

namespace tutti::test {
namespace {

/// How many GPUs, and ranks; rank r is on GPU r modulo their number.
class DeviceGpus : public ::testing::TestWithParam<std::tuple<int, int>> {
 protected:
  void SetUp() override { make(std::get<0>(GetParam())); }
  void TearDown() override { gpus.clear(); }

  static void make(int count) {
    for (int i = 0; i < count; ++i) gpus.push_back(std::make_shared<QueuedDevice>(i));
  }
  static int gpu_of(int rank) { return rank % static_cast<int>(gpus.size()); }
  static void* stream(int rank) {
    return reinterpret_cast<void*>(0x1000 + 16 * std::intptr_t{rank});
  }
  static std::vector<Communicator> ranks(int count, Options options = {}) {
    std::vector<Options> each(static_cast<std::size_t>(count), options);
    for (int r = 0; r < count; ++r) each[static_cast<std::size_t>(r)].gpu = gpu_of(r);
    std::vector<Communicator> all = Communicator::create_local(each);
    for (Communicator& c : all) c.impl().gpus = queued_gpus();
    return all;
  }
  static std::vector<Buffer> inputs(int count) {
    std::vector<Buffer> all;
    for (int r = 0; r < count; ++r) all.emplace_back(gpu_of(r), input_of(r));
    return all;
  }
  static std::vector<Buffer> outputs(int count, std::size_t elements = kCount) {
    std::vector<Buffer> all;
    for (int r = 0; r < count; ++r) all.emplace_back(gpu_of(r), elements);
    return all;
  }
  /// An all_reduce of all, by one thread, in one group.
  static void sum_in_group(std::vector<Communicator>& all, const std::vector<Buffer>& in,
                           const std::vector<Buffer>& out) {
    group([&] {
      for (std::size_t r = 0; r < all.size(); ++r) {
        all[r].run(call_on(Collective::all_reduce, in[r], out[r], kCount),
                   stream(static_cast<int>(r)));
      }
    });
    wait_for_all();
  }
};

TEST_P(DeviceGpus, AGroupIsOneLaunchOnEach) {
  const int n = std::get<1>(GetParam());
  for (const char* algorithm : {"", "ring", "two_shot_window", "direct_window"}) {
    Options options;
    options.algorithm = algorithm;
    auto all = ranks(n, options);
    const auto in = inputs(n);
    const auto out = outputs(n);
    const auto gathered = outputs(n, kCount * all.size());
    Data everything;
    for (int r = 0; r < n; ++r) {
      const Data data = input_of(r);
      everything.insert(everything.end(), data.begin(), data.end());
    }
    for (const auto& gpu : gpus) gpu->launches = 0;
    for (int i = 0; i < 2; ++i) {
      group([&] {
        for (std::size_t r = 0; r < all.size(); ++r) {
          void* const on = stream(static_cast<int>(r));
          all[r].run(call_on(Collective::all_reduce, in[r], out[r], kCount), on);
          all[r].run(call_on(Collective::all_gather, in[r], gathered[r], kCount), on);
        }
      });
    }
    wait_for_all();
    for (const auto& gpu : gpus) EXPECT_EQ(gpu->launches, 4) << algorithm;
    for (const Buffer& o : out) EXPECT_EQ(o.read(), sum_of(n)) << algorithm;
    for (const Buffer& g : gathered) EXPECT_EQ(g.read(), everything) << algorithm;
    const bool windows = std::string(algorithm).find("window") != std::string::npos;
    if (!windows) continue;
    EXPECT_GT(all[0].impl().team->windows()->counts().calls, 0U) << algorithm;
  }
}

TEST_P(DeviceGpus, MessagesInAGroup) {
  const int n = std::get<1>(GetParam());
  auto all = ranks(n);
  const auto in = inputs(n);
  const auto out = outputs(n);
  group([&] {
    for (int r = 0; r < n; ++r) {
      const auto index = static_cast<std::size_t>(r);
      Call call = call_on(Collective::send_recv, in[index], out[index], kCount);
      call.sends = true;
      call.peer = (r + 1) % n;
      call.out = nullptr;
      all[index].run(call, stream(r));
      call = call_on(Collective::send_recv, in[index], out[index], kCount);
      call.peer = (r + n - 1) % n;
      call.in = nullptr;
      all[index].run(call, stream(r));
    }
  });
  wait_for_all();
  for (int r = 0; r < n; ++r) {
    EXPECT_EQ(out[static_cast<std::size_t>(r)].read(), input_of((r + n - 1) % n));
  }
}

TEST_P(DeviceGpus, MemoryThatTheOthersCannotAddressIsCopied) {
  const int n = std::get<1>(GetParam());
  Options options;
  options.algorithm = "two_shot_window";
  auto all = ranks(n, options);
  const auto in = inputs(n);
  const auto out = outputs(n);
  sum_in_group(all, in, out);
  const auto& counts = all[0].impl().team->windows()->counts();
  EXPECT_EQ(counts.calls, all.size());
  EXPECT_EQ(counts.staged, 0U);
  gpus[1]->is_private = true;
  const Buffer private_in(1, input_of(1));
  gpus[1]->is_private = false;
  std::ranges::fill_n(in[1].data(), kCount, -1);  // which would be wrong
  group([&] {
    for (std::size_t r = 0; r < all.size(); ++r) {
      all[r].run(call_on(Collective::all_reduce, r == 1 ? private_in : in[r], out[r], kCount),
                 stream(static_cast<int>(r)));
    }
  });
  wait_for_all();
  for (const Buffer& o : out) EXPECT_EQ(o.read(), sum_of(n));
  EXPECT_EQ(counts.calls, 2 * all.size());
  EXPECT_EQ(counts.staged, 1U);
}

TEST_P(DeviceGpus, ThreadsWithOneStreamForEachGpu) {
  const int n = std::get<1>(GetParam());
  auto all = ranks(n);
  const auto in = inputs(n);
  const auto out = outputs(n);
  // A thread for each GPU, in its default stream: of other GPUs' it knows nothing.
  std::vector<std::jthread> threads;
  for (std::size_t g = 0; g < gpus.size(); ++g) {
    threads.emplace_back([&, g] {
      group([&] {
        for (std::size_t r = g; r < all.size(); r += gpus.size()) {
          all[r].run(call_on(Collective::all_reduce, in[r], out[r], kCount), nullptr);
        }
      });
    });
  }
  threads.clear();
  wait_for_all();
  for (const Buffer& o : out) EXPECT_EQ(o.read(), sum_of(n));
}

INSTANTIATE_TEST_SUITE_P(GpusAndRanks, DeviceGpus,
                         ::testing::Values(std::tuple(2, 2), std::tuple(2, 4), std::tuple(2, 5),
                                           std::tuple(3, 3), std::tuple(4, 8)));

class TwoGpus : public DeviceGpus {
 protected:
  void SetUp() override { make(2); }
};

TEST_F(TwoGpus, TheFirstCallSaysForRanksThatDidNot) {
  std::vector<Communicator> all = Communicator::create_local(2);
  for (Communicator& c : all) c.impl().gpus = queued_gpus();
  std::vector<Buffer> in, out;
  for (int r = 0; r < 2; ++r) {
    in.emplace_back(1, input_of(r));
    out.emplace_back(1, kCount);
  }
  sum_in_group(all, in, out);
  for (const Buffer& o : out) EXPECT_EQ(o.read(), sum_of(2));
  EXPECT_EQ(gpus[0]->launches, 0);
  EXPECT_EQ(all[0].impl().team->ordinal(1), 1);
}

TEST_F(TwoGpus, APartOfTheRanksKeepsTheirGpus) {
  auto all = ranks(4);
  std::vector<Communicator> parts(4);
  {
    std::vector<std::jthread> threads;
    for (int r = 0; r < 4; ++r) {
      threads.emplace_back([&, r] {
        const auto index = static_cast<std::size_t>(r);
        parts[index] = all[index].split(r / 2, r);
        parts[index].impl().gpus = queued_gpus();
      });
    }
  }
  parts.resize(2);
  const auto in = inputs(2);
  const auto out = outputs(2);
  sum_in_group(parts, in, out);
  for (const Buffer& o : out) EXPECT_EQ(o.read(), sum_of(2));
  EXPECT_EQ(gpus[0]->launches, 1);
  EXPECT_EQ(gpus[1]->launches, 1);
}

TEST_F(TwoGpus, ABufferOnAnotherGpuIsRefused) {
  auto all = ranks(2);
  const auto in = inputs(2);
  const auto out = outputs(2);
  sum_in_group(all, in, out);
  const Buffer elsewhere(0, kCount);
  const std::string text = refusal(
      [&] { all[1].run(call_on(Collective::all_reduce, elsewhere, elsewhere, kCount), stream(1)); },
      ErrorCode::invalid_argument);
  EXPECT_NE(text.find("rank 1 has its buffers on GPU 0, but was to have them on GPU 1"),
            std::string::npos)
      << text;
  refusal([&] { all[1].run(call_on(Collective::all_reduce, in[1], elsewhere, kCount), stream(1)); },
          ErrorCode::invalid_argument);
  // None of this has begun anything.
  sum_in_group(all, in, out);
  for (const Buffer& o : out) EXPECT_EQ(o.read(), sum_of(2));
}

TEST_F(TwoGpus, GpusThatCannotReachEachOtherAreRefused) {
  gpus[0]->links = device::Device::Reach::none;
  auto all = ranks(2);
  const auto in = inputs(2);
  const std::string text =
      refusal([&] { all[0].run(call_on(Collective::all_reduce, in[0], in[0], kCount), stream(0)); },
              ErrorCode::invalid_argument);
  EXPECT_NE(text.find("ranks 0 and 1 are of one process"), std::string::npos) << text;
}

TEST_F(TwoGpus, ATimeOutOnOneEndsAll) {
  Options options;
  options.timeout = std::chrono::milliseconds(200);
  auto all = ranks(4, options);
  const auto in = inputs(4);
  const auto out = outputs(4);
  group([&] {  // rank 3 is missing
    for (std::size_t r = 0; r < 3; ++r) {
      all[r].run(call_on(Collective::all_reduce, in[r], out[r], kCount),
                 stream(static_cast<int>(r)));
    }
  });
  wait_for_all();
  const std::string text = refusal([&] { all[0].barrier(); }, ErrorCode::timed_out);
  EXPECT_NE(text.find("for rank 3"), std::string::npos) << text;
}

}  // namespace
}  // namespace tutti::test
