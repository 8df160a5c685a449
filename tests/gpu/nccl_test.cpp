// libnccl.so.2 on the memory of a GPU, with two ranks on it: what NCCL itself does not allow.
#include "bindings/nccl/nccl.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <vector>

namespace {

constexpr int kRanks = 2;
constexpr std::size_t kCount = 100003;

TEST(GpuNccl, AllReduceAndAllGatherInAGroup) {
  ncclComm_t comms[kRanks] = {};
  const int devices[kRanks] = {0, 0};
  ASSERT_EQ(ncclCommInitAll(comms, kRanks, devices), ncclSuccess) << ncclGetLastError(nullptr);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  void* in[kRanks] = {};
  void* sum[kRanks] = {};
  void* all[kRanks] = {};
  std::vector<float> host(kCount);
  for (int r = 0; r < kRanks; ++r) {
    ASSERT_EQ(cudaMalloc(&in[r], kCount * sizeof(float)), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&sum[r], kCount * sizeof(float)), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&all[r], kRanks * kCount * sizeof(float)), cudaSuccess);
    for (std::size_t i = 0; i < kCount; ++i) host[i] = static_cast<float>(i % 1000 + 3000 * r);
    ASSERT_EQ(cudaMemcpy(in[r], host.data(), kCount * sizeof(float), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < kRanks; ++r) {
    ASSERT_EQ(ncclAllReduce(in[r], sum[r], kCount, ncclFloat, ncclSum, comms[r], stream),
              ncclSuccess);
    ASSERT_EQ(ncclAllGather(in[r], all[r], kCount, ncclFloat, comms[r], stream), ncclSuccess);
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  for (int r = 0; r < kRanks; ++r) {
    ncclResult_t state = ncclSystemError;
    EXPECT_EQ(ncclCommGetAsyncError(comms[r], &state), ncclSuccess);
    EXPECT_EQ(state, ncclSuccess);
    std::size_t wrong = 0;
    ASSERT_EQ(cudaMemcpy(host.data(), sum[r], kCount * sizeof(float), cudaMemcpyDeviceToHost),
              cudaSuccess);
    for (std::size_t i = 0; i < kCount; ++i) {
      wrong += host[i] != static_cast<float>(2 * (i % 1000) + 3000);
    }
    std::vector<float> gathered(kRanks * kCount);
    ASSERT_EQ(cudaMemcpy(gathered.data(), all[r], gathered.size() * sizeof(float),
                         cudaMemcpyDeviceToHost),
              cudaSuccess);
    for (std::size_t i = 0; i < gathered.size(); ++i) {
      wrong += gathered[i] != static_cast<float>(i % kCount % 1000 + 3000 * (i / kCount));
    }
    EXPECT_EQ(wrong, 0U) << "rank " << r;
    EXPECT_EQ(ncclCommDestroy(comms[r]), ncclSuccess);
    cudaFree(in[r]);
    cudaFree(sum[r]);
    cudaFree(all[r]);
  }
  cudaStreamDestroy(stream);
}

// Every rank to every one, itself included: what all-to-all is in NCCL's documentation.
TEST(GpuNccl, SendAndRecvInAGroup) {
  ncclComm_t comms[kRanks] = {};
  const int devices[kRanks] = {0, 0};
  ASSERT_EQ(ncclCommInitAll(comms, kRanks, devices), ncclSuccess) << ncclGetLastError(nullptr);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreate(&stream), cudaSuccess);
  float* in[kRanks] = {};
  float* out[kRanks] = {};
  std::vector<float> host(kRanks * kCount);
  for (int r = 0; r < kRanks; ++r) {
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&in[r]), host.size() * sizeof(float)),
              cudaSuccess);
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&out[r]), host.size() * sizeof(float)),
              cudaSuccess);
    for (std::size_t i = 0; i < host.size(); ++i) {
      host[i] = static_cast<float>(i % 1000 + 1000 * (i / kCount) + 10000 * r);
    }
    ASSERT_EQ(cudaMemcpy(in[r], host.data(), host.size() * sizeof(float), cudaMemcpyHostToDevice),
              cudaSuccess);
  }
  for (int repeat = 0; repeat < 3; ++repeat) {
    ASSERT_EQ(ncclGroupStart(), ncclSuccess);
    for (int r = 0; r < kRanks; ++r) {
      for (int peer = 0; peer < kRanks; ++peer) {
        const std::size_t at = static_cast<std::size_t>(peer) * kCount;
        ASSERT_EQ(ncclSend(in[r] + at, kCount, ncclFloat, peer, comms[r], stream), ncclSuccess);
        ASSERT_EQ(ncclRecv(out[r] + at, kCount, ncclFloat, peer, comms[r], stream), ncclSuccess);
      }
    }
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  }
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  for (int r = 0; r < kRanks; ++r) {
    std::vector<float> got(host.size());
    ASSERT_EQ(cudaMemcpy(got.data(), out[r], got.size() * sizeof(float), cudaMemcpyDeviceToHost),
              cudaSuccess);
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::size_t of_block = r * kCount + i % kCount;  // of the sender's input
      wrong += got[i] != static_cast<float>(of_block % 1000 + 1000 * static_cast<std::size_t>(r) +
                                            10000 * (i / kCount));
    }
    EXPECT_EQ(wrong, 0U) << "rank " << r;
    EXPECT_EQ(ncclCommDestroy(comms[r]), ncclSuccess);
    cudaFree(in[r]);
    cudaFree(out[r]);
  }
  cudaStreamDestroy(stream);
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  int devices = 0;
  if (const cudaError_t e = cudaGetDeviceCount(&devices); e != cudaSuccess || devices == 0) {
    std::printf("no CUDA device: %s\n", cudaGetErrorString(e));
    return 77;
  }
  return RUN_ALL_TESTS();
}
