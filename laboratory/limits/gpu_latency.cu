// What a short call on a GPU is made of: launches, trips to memory, orders, barriers, and an answer
// from another block. docs/gpu-status.md compares the time of a collective with these.
//
//     gpu_latency            a line for each: what, and how long
//
// Exit status 77: no GPU.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "execute/cuda/memory.h"

namespace {

constexpr int kNoGpu = 77;
constexpr int kThreads = 512;  // as the kernels of collectives
constexpr int kTimes = 50;     // of each thing, in a kernel

void check(cudaError_t result) {
  if (result == cudaSuccess) return;
  std::fprintf(stderr, "gpu_latency: CUDA: %s\n", cudaGetErrorString(result));
  std::exit(1);
}

// --- Launches ------------------------------------------------------------------------------------

template <int kBytes>
struct Parameters {
  char bytes[kBytes];
};

template <int kBytes>
__global__ void __launch_bounds__(kThreads, 1)
    nothing(const __grid_constant__ Parameters<kBytes> parameters, int* to) {
  if (to != nullptr) *to = parameters.bytes[0] + parameters.bytes[kBytes - 1];
}

/// Microseconds from a kernel to the next, in a graph of 100 of them.
template <class F>
double in_a_graph(cudaStream_t stream, const F& launch) {
  constexpr int kKernels = 100;
  constexpr int kRounds = 30;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < kKernels; ++i) launch();
  check(cudaStreamEndCapture(stream, &graph));
  check(cudaGraphInstantiate(&executable, graph, 0));
  cudaEvent_t begin = nullptr, end = nullptr;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  std::vector<float> times;
  for (int round = 0; round < kRounds; ++round) {
    check(cudaEventRecord(begin, stream));
    check(cudaGraphLaunch(executable, stream));
    check(cudaEventRecord(end, stream));
    check(cudaStreamSynchronize(stream));
    check(cudaEventElapsedTime(&times.emplace_back(), begin, end));
  }
  std::nth_element(times.begin(), times.begin() + kRounds / 2, times.end());
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  return 1000.0 * times[kRounds / 2] / kKernels;
}

template <int kBytes>
void launches(cudaStream_t stream, unsigned blocks, int* to) {
  const Parameters<kBytes> parameters{};
  const double us =
      in_a_graph(stream, [&] { nothing<kBytes><<<blocks, kThreads, 0, stream>>>(parameters, to); });
  std::printf(
      "from a kernel of a graph to the next: %3u blocks, %4d B of parameters, %-15s %8.2f us\n",
      blocks, kBytes, to == nullptr ? "nothing to do" : "a word to store", us);
}

// --- Within a kernel -----------------------------------------------------------------------------

using tutti::device::load_acquire, tutti::device::load_relaxed;
using tutti::device::store_relaxed, tutti::device::store_release;

__device__ void store_release_gpu(std::uint64_t* p, std::uint64_t v) {
  asm volatile("st.release.gpu.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}

constexpr const char* kNames[] = {"ld.relaxed.sys",
                                  "ld.acquire.sys",
                                  "st.release.sys, with nothing to wait for",
                                  "st.release.gpu, with nothing to wait for",
                                  "a barrier of 512 threads",
                                  "the same, with a vote"};
constexpr int kThings = static_cast<int>(std::size(kNames));

/// Cycles of each thing, in `cycles`, by one block.
__global__ void __launch_bounds__(kThreads, 1)
    each_thing(std::uint64_t* memory, long long* cycles) {
  std::uint64_t word = 0;
  const bool first = threadIdx.x == 0;
  const auto time = [&](int which, const auto& thing) {
    __syncthreads();
    const long long begin = clock64();
    for (int i = 0; i < kTimes; ++i) thing(i);
    const long long end = clock64();
    if (first) cycles[which] = (end - begin) / kTimes;
  };
  // Each load's address follows from the one before.
  time(0, [&](int) { word = first ? load_relaxed(memory + (word & 1)) : 0; });
  time(1, [&](int) { word = first ? load_acquire(memory + (word & 1)) : 0; });
  time(2, [&](int i) {
    if (first) store_release(memory + 16, i);
  });
  time(3, [&](int i) {
    if (first) store_release_gpu(memory + 16, i);
  });
  time(4, [&](int) { __syncthreads(); });
  time(5, [&](int i) { word += __syncthreads_and(i >= 0); });
  if (first) memory[32] = word;
}

/// Two blocks that answer each other: cycles from a question to the answer.
__global__ void answers(std::uint64_t* memory, bool ordered, long long* cycles) {
  constexpr std::uint64_t kRounds = 1000;
  std::uint64_t* const mine = memory + 64 * blockIdx.x;
  std::uint64_t* const theirs = memory + 64 * (1 - blockIdx.x);
  const auto say = [&](std::uint64_t i) {
    ordered ? store_release(theirs, i) : store_relaxed(theirs, i);
  };
  const auto hear = [&](std::uint64_t i) {
    while ((ordered ? load_acquire(mine) : load_relaxed(mine)) != i) {
    }
  };
  const long long begin = clock64();
  for (std::uint64_t i = 1; i <= kRounds; ++i) {
    if (blockIdx.x == 0) say(i);
    hear(i);
    if (blockIdx.x == 1) say(i);
  }
  if (blockIdx.x == 0) *cycles = (clock64() - begin) / static_cast<long long>(kRounds);
}

}  // namespace

int main() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("gpu_latency: there is no GPU\n");
    return kNoGpu;
  }
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  constexpr std::size_t kBytes = 4096;
  std::uint64_t* memory = nullptr;
  check(cudaMalloc(&memory, kBytes));
  long long* cycles = nullptr;
  check(cudaMallocHost(&cycles, kThings * sizeof(long long)));
  for (const unsigned blocks : {2U, 128U}) {
    launches<64>(stream, blocks, nullptr);
    launches<64>(stream, blocks, reinterpret_cast<int*>(memory));
    launches<1000>(stream, blocks, reinterpret_cast<int*>(memory));
    launches<4000>(stream, blocks, reinterpret_cast<int*>(memory));
  }
  for (int round = 0; round < 2; ++round) {  // the first one loads the code
    check(cudaMemset(memory, 0, kBytes));
    each_thing<<<1, kThreads>>>(memory, cycles);
    check(cudaDeviceSynchronize());
  }
  for (int i = 0; i < kThings; ++i) std::printf("%-70s %8lld cycles\n", kNames[i], cycles[i]);
  for (const bool ordered : {false, true}) {
    for (int round = 0; round < 2; ++round) {
      check(cudaMemset(memory, 0, kBytes));
      answers<<<2, 1>>>(memory, ordered, cycles);
      check(cudaDeviceSynchronize());
    }
    std::printf("%-70s %8lld cycles\n",
                ordered ? "  by release and acquire" : "an answer from another block, relaxed",
                *cycles);
  }
  return 0;
}
