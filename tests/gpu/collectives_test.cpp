// Collectives by real kernels, all ranks on one GPU: the body of cuda_host_test, and what only a
// GPU has: streams, graphs, kernels that must leave a wait.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/collectives/cuda/cuda_cases.h"
#include "transport/gpu/cuda_module.h"

namespace tutti::test {
namespace {

using device::Protocol;
using device::SegmentShape;
using namespace std::chrono_literals;

// As in earnest, beside kSmallSlots, which meets every boundary with little data.
constexpr SegmentShape kLarge{.channels = 16,
                              .slots = 4,
                              .ll_bytes = 32 << 10,
                              .ll128_bytes = 64 << 10,
                              .simple_bytes = 128 << 10};

void check(cudaError_t result) {
  if (result != cudaSuccess) throw Error(ErrorCode::system, cudaGetErrorString(result));
}

struct OwnStream {
  OwnStream() { check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)); }
  ~OwnStream() { cudaStreamDestroy(stream); }
  cudaStream_t stream = nullptr;
};

DeviceUnderTest on(device::Device& device, cudaStream_t stream) {
  return {device,
          [](std::byte* to, const std::byte* from, std::size_t n) {
            if (n > 0) check(cudaMemcpy(to, from, n, cudaMemcpyDeviceToHost));
          },
          [stream] { check(cudaStreamSynchronize(stream)); }, stream};
}

/// Whether a rank's buffers are one block, and not one for every rank.
bool has_one_block(Collective c) {
  return c == Collective::all_reduce || c == Collective::broadcast || c == Collective::reduce;
}

class Gpu : public ::testing::TestWithParam<int> {
 protected:
  const std::shared_ptr<device::Device> opened = cuda().open(0);
  device::Device& device = *opened;
  OwnStream own;
};

TEST_P(Gpu, EveryAlgorithmEveryBoundary) {
  DeviceRanks all(on(device, own.stream), GetParam(), kSmallSlots);
  test_every_algorithm(all, kBoundaries);
  test_every_algorithm(all, std::vector<std::size_t>{100000});
}

TEST_P(Gpu, EveryTypeAndOperator) {
  DeviceRanks all(on(device, own.stream), GetParam(), kSmallSlots);
  test_every_type_and_operator(all, 20000);
}

// Each collective, by its algorithms in turn.
TEST_P(Gpu, EveryCollectiveTypeAndOperator) {
  DeviceRanks all(on(device, own.stream), GetParam(), kSmallSlots);
  std::size_t k = 0;
  for (int c = 0; c < kCollectives; ++c) {
    std::vector<const Algorithm*> able;
    for (const Algorithm& a : algorithms()) {
      if (a.collective == static_cast<Collective>(c) && runs_on_gpus(a)) able.push_back(&a);
    }
    if (able.empty()) continue;
    const int kinds = is_reduction(static_cast<Collective>(c)) ? kReduceKinds : 1;
    for (int i = 0; i < kDataTypes * kinds; ++i) {
      for (const bool in_place : {false, true}) {
        const Algorithm& a = *able[k % able.size()];
        if (in_place && !has_in_place(a.collective)) continue;
        DeviceCase once = nth(a, ++k, all.size());
        once.type = static_cast<DataType>(i / kinds);
        if (kinds > 1) once.kind = static_cast<ReduceKind>(i % kinds);
        once.in_place = in_place;
        once.bytes = 3000 + k;
        ASSERT_EQ(all.run(once), 0U) << once.text(all.size());
      }
    }
  }
}

// Slots, copies and protocols as the executor chooses them.
TEST_P(Gpu, OwnChoice) {
  const int ranks = GetParam();
  DeviceRanks all(on(device, own.stream), ranks, kLarge);
  for (const Algorithm& a : algorithms()) {
    if (!runs_on_gpus(a)) continue;
    // The host compares 32 MiB of all ranks in a fraction of a second.
    const std::size_t blocks = has_one_block(a.collective) ? 1 : static_cast<std::size_t>(ranks);
    const std::size_t large = (std::size_t{32} << 20) / (blocks * static_cast<std::size_t>(ranks));
    for (const std::size_t bytes : {std::size_t{8}, large / 512, large / 32, large + 4}) {
      DeviceCase c = nth(a, 7 + 24, ranks);  // float32
      c.protocol.reset();
      c.copies = 0;
      c.misalign = 0;
      c.bytes = bytes;
      ASSERT_EQ(all.run(c), 0U) << c.text(ranks);
    }
  }
}

// Every rank its own kernel on its own stream.
TEST_P(Gpu, SeparateLaunches) {
  const int ranks = GetParam();
  DeviceRanks all(on(device, own.stream), ranks, kLarge);
  std::vector<OwnStream> streams(static_cast<std::size_t>(ranks));
  for (const Protocol p : kProtocols) {
    DeviceCase c = nth(*find_algorithm(Collective::all_reduce, "ring"), 7, ranks);
    c.kind = ReduceKind::sum;
    c.protocol = p;
    c.bytes = 100000;
    const auto bound = all.bind(c);
    bound.upload();
    check(cudaStreamSynchronize(own.stream));
    for (std::size_t r = 0; r < streams.size(); ++r) {
      device::enqueue(device, {&bound.launches[r], 1}, all.shape(), c.type, streams[r].stream);
      device.note(streams[r].stream, &all);
    }
    for (const OwnStream& s : streams) check(cudaStreamSynchronize(s.stream));
    device.drain(&all);
    ASSERT_EQ(bound.count_wrong(), 0U) << c.text(ranks);
    all.throw_failure();
  }
}

TEST_P(Gpu, GraphsReplay) {
  const int ranks = GetParam();
  DeviceRanks all(on(device, own.stream), ranks, kLarge);
  for (const Protocol p : kProtocols) {
    DeviceCase c = nth(*find_algorithm(Collective::all_reduce, "ring"), 7, ranks);
    c.kind = ReduceKind::max;  // so that a second run in the same buffers gives the same
    c.protocol = p;
    c.bytes = 10000;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    // Buffers are allocated, and painted, before the capture; the plan is uploaded during it.
    const auto warm = all.bind(c);
    warm.upload();
    all.launch(warm, c.type);
    ASSERT_EQ(warm.count_wrong(), 0U);
    c.copies = 2;
    check(cudaStreamBeginCapture(own.stream, cudaStreamCaptureModeThreadLocal));
    const auto bound = all.bind(c);
    all.launch(bound, c.type);
    check(cudaStreamEndCapture(own.stream, &graph));
    check(cudaGraphInstantiate(&executable, graph, 0));
    bound.upload();
    for (int i = 0; i < 1000; ++i) check(cudaGraphLaunch(executable, own.stream));
    EXPECT_EQ(bound.count_wrong(), 0U) << c.text(ranks);
    all.throw_failure();
    // And an ordinary call between replays.
    all.launch(warm, c.type);
    check(cudaGraphLaunch(executable, own.stream));
    check(cudaStreamSynchronize(own.stream));
    all.throw_failure();
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Gpu, ::testing::Values(1, 2, 3, 4, 8));

class GpuFaults : public Gpu {};

TEST_P(GpuFaults, DeadlineAndAbortLeaveTheWait) {
  DeviceCase c = nth(*find_algorithm(Collective::all_reduce, "ring"), 7, 2);
  c.kind = ReduceKind::sum;
  c.protocol = kProtocols[GetParam()];
  c.bytes = 10000;
  for (const bool aborts : {false, true}) {
    DeviceRanks all(on(device, own.stream), 2, kLarge);
    auto bound = all.bind(c);
    bound.upload();
    bound.launches.pop_back();
    all.executor(0).set_limits({aborts ? 0ms : 100ms});
    all.launch(bound, c.type);
    std::this_thread::sleep_for(20ms);
    ASSERT_EQ(cudaStreamQuery(own.stream), cudaErrorNotReady) << "nobody sends: it has to wait";
    if (aborts) all.executor(0).abort();
    check(cudaStreamSynchronize(own.stream));
    const auto failure = all.executor(0).failure();
    ASSERT_EQ(failure.has_value(), !aborts);
    if (failure) {
      EXPECT_EQ(failure->code(), ErrorCode::timed_out) << failure->what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Protocols, GpuFaults, ::testing::Values(0, 1, 2));

}  // namespace
}  // namespace tutti::test
