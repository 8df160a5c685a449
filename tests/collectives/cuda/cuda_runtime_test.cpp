// CudaDevice, and communicators on it, over a CUDA runtime of threads (cuda_runtime/runtime.h):
// what Tutti calls while a stream is captured, or while a kernel waits for another rank, is allowed
// then.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "comm/device_call.h"
#include "execute/cuda/cuda_device.h"
#include "tests/collectives/cuda/cuda_runtime/runtime.h"
#include "tests/device/device_memory.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

std::shared_ptr<device::Device> open_gpu(int ordinal) {
  static std::mutex mutex;
  static std::map<int, std::weak_ptr<device::Device>> all;
  const std::lock_guard lock(mutex);
  std::shared_ptr<device::Device> gpu = all[ordinal].lock();
  if (!gpu) all[ordinal] = gpu = std::make_shared<device::CudaDevice>(ordinal);
  return gpu;
}

std::vector<Communicator> ranks(int count) {
  std::vector<Communicator> all = Communicator::create_local(count, Options{});
  for (Communicator& c : all) {
    c.impl().gpus = {[](const void*) { return 0; }, [] { return 0; }, open_gpu};
  }
  return all;
}

/// Once they are what is expected.
void expect_no_bad_calls() { EXPECT_EQ(bad_cuda_calls(), std::vector<std::string>{}); }

struct Stream {
  Stream() { cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { cudaStreamDestroy(stream); }
  /// By a user who knows that others capture.
  void wait() const {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    cudaThreadExchangeStreamCaptureMode(&mode);
  }

  cudaStream_t stream = nullptr;
};

/// Two ranks of a communicator, their buffers, and a stream for each.
struct Pair {
  std::vector<Communicator> all = ranks(2);
  std::vector<Data> in{input_of(0), input_of(1)};
  std::vector<Data> out{Data(kCount), Data(kCount)};
  Stream stream[2];

  Call call(std::size_t r) { return all_reduce_call(in[r], out[r]); }
  void run(std::size_t r) { all[r].run(call(r), stream[r].stream); }
  void run_together(cudaStream_t on) {
    group([&] {
      for (std::size_t r = 0; r < 2; ++r) all[r].run(call(r), on);
    });
  }
  void expect_sum() {
    for (const Stream& s : stream) s.wait();
    for (Data& o : out) {
      EXPECT_EQ(o, sum_of(2));
      std::ranges::fill(o, 0);
    }
  }
};

// What the other tests rely on.
TEST(CudaRuntime, NotesWhatCudaRefuses) {
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 100), cudaSuccess);
  Stream captured;
  ASSERT_EQ(cudaStreamBeginCapture(captured.stream, cudaStreamCaptureModeGlobal), cudaSuccess);
  std::jthread([&] { EXPECT_EQ(cudaFree(memory), cudaErrorStreamCaptureUnsupported); }).join();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(captured.stream, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(bad_cuda_calls(), std::vector<std::string>{"cudaFree while a stream is captured"});
  {
    Pair pair;
    pair.run_together(pair.stream[0].stream);
    pair.expect_sum();
    pair.run(0);
    while (cuda_kernels_running() == 0) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(cudaFree(memory), cudaSuccess);
    EXPECT_EQ(bad_cuda_calls(), std::vector<std::string>{"cudaFree while a kernel runs"});
    pair.run(1);
    pair.expect_sum();
  }
  expect_no_bad_calls();
}

// A kernel waits for a rank whose thread is busy with other communicators.
TEST(CudaRuntime, NobodyWaitsForAnotherCommunicatorsKernel) {
  Pair waiting;
  waiting.run_together(waiting.stream[0].stream);
  waiting.expect_sum();
  {
    Pair leaving;
    leaving.run_together(leaving.stream[0].stream);
    leaving.expect_sum();
    waiting.run(0);
    while (cuda_kernels_running() == 0) std::this_thread::sleep_for(1ms);
    for (int i = 0; i < 3; ++i) {
      Pair another;
      another.run_together(another.stream[0].stream);
      another.expect_sum();
    }
  }
  EXPECT_EQ(cuda_kernels_running(), 1);
  waiting.run(1);
  waiting.expect_sum();
  expect_no_bad_calls();
}

// A launch waits where its stream is far behind, which another rank's launches have to end.
TEST(CudaRuntime, ARankFarAheadHoldsUpNoOtherRank) {
  constexpr int kCalls = 100;
  Pair pair;
  pair.run_together(pair.stream[0].stream);
  pair.expect_sum();
  std::jthread ahead([&] {
    for (int i = 0; i < kCalls; ++i) pair.run(0);
  });
  while (cuda_kernels_running() == 0) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(50ms);  // it waits in a launch by now, most probably
  for (int i = 0; i < kCalls; ++i) pair.run(1);
  ahead.join();
  pair.expect_sum();
  expect_no_bad_calls();
}

// The operations of a rank keep their order, whatever the streams that they are on.
TEST(CudaRuntime, StreamsOfARankTakeTurns) {
  constexpr std::size_t kCalls = 12;
  Pair pair;
  const Stream second[2];
  std::vector<Data> in, out(2 * kCalls, Data(kCount));
  for (std::size_t i = 0; i < 2 * kCalls; ++i) in.push_back(input_of(static_cast<int>(i)));
  for (std::size_t i = 0; i < kCalls; ++i) {
    for (std::size_t r = 0; r < 2; ++r) {
      const Stream& on = i % 3 == 1 ? second[r] : pair.stream[r];
      pair.all[r].run(all_reduce_call(in[2 * i + r], out[2 * i + r]), on.stream);
    }
  }
  for (const Stream& s : pair.stream) s.wait();
  for (const Stream& s : second) s.wait();
  for (std::size_t i = 0; i < kCalls; ++i) {
    Data sum = in[2 * i];
    for (std::size_t e = 0; e < kCount; ++e) sum[e] += in[2 * i + 1][e];
    EXPECT_EQ(out[2 * i], sum) << i;
    EXPECT_EQ(out[2 * i + 1], sum) << i;
  }
  expect_no_bad_calls();
}

// What waits for a rank that does not come ends when the communicator does.
TEST(CudaRuntime, AnAbortEndsWhatIsOnAStream) {
  Pair pair;
  pair.run_together(pair.stream[0].stream);
  pair.expect_sum();
  const RankGroup& group = *pair.all[0].impl().group;
  EXPECT_FALSE(is_running_on_device(group));
  pair.run(0);
  EXPECT_TRUE(is_running_on_device(group));
  EXPECT_FALSE(is_running_on_device(*pair.all[1].impl().group));
  pair.all[1] = {};
  EXPECT_TRUE(is_running_on_device(group)) << "of the last rank";
  pair.all[0].abort();
  wait_on_device(group);
  EXPECT_FALSE(is_running_on_device(group));
  pair.all[0].destroy();
  expect_no_bad_calls();
}

class CudaRuntimeCaptures : public ::testing::TestWithParam<cudaStreamCaptureMode> {};

// The first call allocates, and loads its plan.
TEST_P(CudaRuntimeCaptures, AFirstCall) {
  Pair pair;
  const cudaStream_t stream = pair.stream[0].stream;
  ASSERT_EQ(cudaStreamBeginCapture(stream, GetParam()), cudaSuccess);
  pair.run_together(stream);
  pair.run_together(stream);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  expect_no_bad_calls();
  cudaGraphExec_t executable = nullptr;
  cudaGraphInstantiate(&executable, graph, 0);
  EXPECT_EQ(pair.out[0], Data(kCount)) << "nothing has run";
  for (int i = 0; i < 3; ++i) {
    cudaGraphLaunch(executable, stream);
    pair.expect_sum();
  }
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
}

// A thread that captures nothing makes, uses and leaves communicators.
TEST_P(CudaRuntimeCaptures, AnotherThreadsWork) {
  Stream captured;
  ASSERT_EQ(cudaStreamBeginCapture(captured.stream, GetParam()), cudaSuccess);
  std::jthread([] {
    for (int i = 0; i < 2; ++i) {
      Pair pair;
      pair.run_together(pair.stream[0].stream);
      pair.expect_sum();
      pair.run(0);
      pair.run(1);
      pair.expect_sum();
    }
  }).join();
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(captured.stream, &graph), cudaSuccess);
  if (graph != nullptr) cudaGraphDestroy(graph);
  expect_no_bad_calls();
}

// Two streams in one graph, after what has run on one of them.
TEST_P(CudaRuntimeCaptures, StreamsOfAGraph) {
  Pair pair;
  const cudaStream_t stream = pair.stream[0].stream;
  const Stream branch;
  pair.run_together(branch.stream);
  branch.wait();
  pair.expect_sum();
  const auto fork = [](cudaStream_t from, cudaStream_t to) {
    cudaEvent_t event = nullptr;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    EXPECT_EQ(cudaEventRecord(event, from), cudaSuccess);
    EXPECT_EQ(cudaStreamWaitEvent(to, event, 0), cudaSuccess);
    cudaEventDestroy(event);
  };
  ASSERT_EQ(cudaStreamBeginCapture(stream, GetParam()), cudaSuccess);
  fork(stream, branch.stream);
  pair.run_together(stream);
  pair.run_together(branch.stream);
  fork(branch.stream, stream);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
  expect_no_bad_calls();
  pair.run_together(stream);
  pair.expect_sum();
  cudaGraphExec_t executable = nullptr;
  cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphLaunch(executable, stream);
  pair.expect_sum();
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  expect_no_bad_calls();
}

INSTANTIATE_TEST_SUITE_P(Modes, CudaRuntimeCaptures,
                         ::testing::Values(cudaStreamCaptureModeGlobal,
                                           cudaStreamCaptureModeThreadLocal,
                                           cudaStreamCaptureModeRelaxed));

}  // namespace
}  // namespace tutti::test
