// libnccl.so.2 on the memory of a GPU, with two ranks on it: what NCCL itself does not allow.
#include "bindings/nccl/nccl.h"

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

constexpr int kRanks = 2;
constexpr std::size_t kCount = 100003;

/// Both ranks on GPU 0, and a stream for them.
class GpuNccl : public ::testing::Test {
 protected:
  void open(unsigned flags = cudaStreamDefault) {
    const int devices[kRanks] = {0, 0};
    ASSERT_EQ(ncclCommInitAll(comms, kRanks, devices), ncclSuccess) << ncclGetLastError(nullptr);
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, flags), cudaSuccess);
  }
  void TearDown() override {
    for (const ncclComm_t comm : comms) {
      if (comm == nullptr) continue;
      EXPECT_EQ(ncclCommDestroy(comm), ncclSuccess);
    }
    if (stream != nullptr) cudaStreamDestroy(stream);
  }

  ncclComm_t comms[kRanks] = {};
  cudaStream_t stream = nullptr;
};

TEST_F(GpuNccl, AllReduceAndAllGatherInAGroup) {
  ASSERT_NO_FATAL_FAILURE(open());
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
    cudaFree(in[r]);
    cudaFree(sum[r]);
    cudaFree(all[r]);
  }
}

// Twice in a group: each has a copy of its own of what is there before.
TEST_F(GpuNccl, AllToAllInPlace) {
  ASSERT_NO_FATAL_FAILURE(open());
  constexpr std::size_t kAll = kRanks * kCount;
  float* data[kRanks][2] = {};
  std::vector<float> host(kAll);
  for (int r = 0; r < kRanks; ++r) {
    for (int k = 0; k < 2; ++k) {
      ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&data[r][k]), kAll * sizeof(float)),
                cudaSuccess);
      for (std::size_t i = 0; i < kAll; ++i) {
        host[i] = static_cast<float>(i % 1000 + 1000 * (i / kCount) + 10000 * (2 * r + k));
      }
      ASSERT_EQ(cudaMemcpy(data[r][k], host.data(), kAll * sizeof(float), cudaMemcpyHostToDevice),
                cudaSuccess);
    }
  }
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < kRanks; ++r) {
    for (float* buffer : data[r]) {
      ASSERT_EQ(ncclAlltoAll(buffer, buffer, kCount, ncclFloat, comms[r], stream), ncclSuccess);
    }
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  for (int r = 0; r < kRanks; ++r) {
    for (int k = 0; k < 2; ++k) {
      ASSERT_EQ(cudaMemcpy(host.data(), data[r][k], kAll * sizeof(float), cudaMemcpyDeviceToHost),
                cudaSuccess);
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < kAll; ++i) {
        const std::size_t of_block = static_cast<std::size_t>(r) * kCount + i % kCount;
        wrong +=
            host[i] != static_cast<float>(of_block % 1000 + 1000 * static_cast<std::size_t>(r) +
                                          10000 * (2 * (i / kCount) + static_cast<std::size_t>(k)));
      }
      EXPECT_EQ(wrong, 0U) << "rank " << r << ", call " << k;
      cudaFree(data[r][k]);
    }
  }
}

// Every rank to every one, itself included: what all-to-all is in NCCL's documentation.
TEST_F(GpuNccl, SendAndRecvInAGroup) {
  ASSERT_NO_FATAL_FAILURE(open());
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
    cudaFree(in[r]);
    cudaFree(out[r]);
  }
}

// A kernel that waits for a rank which does not come.
TEST_F(GpuNccl, AbortEndsAKernelThatWaits) {
  ASSERT_NO_FATAL_FAILURE(open(cudaStreamNonBlocking));
  void* buffer = nullptr;
  ASSERT_EQ(cudaMalloc(&buffer, kCount * sizeof(float)), cudaSuccess);
  ASSERT_EQ(ncclAllReduce(buffer, buffer, kCount, ncclFloat, ncclSum, comms[0], stream),
            ncclSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  for (ncclComm_t& comm : comms) {
    EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    comm = nullptr;
  }
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  cudaFree(buffer);
}

TEST_F(GpuNccl, MemAllocGivesMemoryOfTheGpu) {
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  void* memory = nullptr;
  ASSERT_EQ(ncclMemAlloc(&memory, 1000), ncclSuccess) << ncclGetLastError(nullptr);
  cudaPointerAttributes attributes{};
  ASSERT_EQ(cudaPointerGetAttributes(&attributes, memory), cudaSuccess);
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 0);
  EXPECT_EQ(ncclMemFree(static_cast<char*>(memory) + 8), ncclInvalidArgument);
  EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
  EXPECT_EQ(ncclMemFree(memory), ncclInvalidArgument);
  // Also on a thread that has not said which GPU it uses.
  std::thread([] {
    void* other = nullptr;
    EXPECT_EQ(ncclMemAlloc(&other, 1000), ncclSuccess);
    cudaPointerAttributes its{};
    EXPECT_EQ(cudaPointerGetAttributes(&its, other), cudaSuccess);
    EXPECT_EQ(its.type, cudaMemoryTypeDevice);
    EXPECT_EQ(ncclMemFree(other), ncclSuccess);
  }).join();
}

// The scalar is written by what is on the stream before the collective.
TEST_F(GpuNccl, ScalarInDeviceMemory) {
  ASSERT_NO_FATAL_FAILURE(open(cudaStreamNonBlocking));
  void* data[kRanks] = {};
  void* scalar[kRanks] = {};
  ncclRedOp_t op[kRanks] = {};
  const std::vector<float> ones(kCount, 1.0F);
  const float scalars[kRanks] = {2.5F, 4.0F};
  for (int r = 0; r < kRanks; ++r) {
    ASSERT_EQ(cudaMalloc(&data[r], kCount * sizeof(float)), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&scalar[r], sizeof(float)), cudaSuccess);
    ASSERT_EQ(ncclRedOpCreatePreMulSum(&op[r], scalar[r], ncclFloat, ncclScalarDevice, comms[r]),
              ncclSuccess);
    ASSERT_EQ(cudaMemcpyAsync(data[r], ones.data(), kCount * sizeof(float), cudaMemcpyHostToDevice,
                              stream),
              cudaSuccess);
    ASSERT_EQ(
        cudaMemcpyAsync(scalar[r], &scalars[r], sizeof(float), cudaMemcpyHostToDevice, stream),
        cudaSuccess);
  }
  ASSERT_EQ(ncclGroupStart(), ncclSuccess);
  for (int r = 0; r < kRanks; ++r) {
    ASSERT_EQ(ncclAllReduce(data[r], data[r], kCount, ncclFloat, op[r], comms[r], stream),
              ncclSuccess);
    EXPECT_EQ(ncclRedOpDestroy(op[r], comms[r]), ncclSuccess) << "before it runs";
  }
  ASSERT_EQ(ncclGroupEnd(), ncclSuccess) << ncclGetLastError(nullptr);
  for (int r = 0; r < kRanks; ++r) {
    std::vector<float> result(kCount);
    ASSERT_EQ(cudaMemcpyAsync(result.data(), data[r], kCount * sizeof(float),
                              cudaMemcpyDeviceToHost, stream),
              cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(std::count(result.begin(), result.end(), 6.5F), static_cast<long>(kCount));
  }

  // A graph would keep the scalar of now.
  const cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
  ncclRedOp_t captured{};
  ASSERT_EQ(ncclRedOpCreatePreMulSum(&captured, scalar[0], ncclFloat, ncclScalarDevice, comms[0]),
            ncclSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
  EXPECT_EQ(ncclAllReduce(data[0], data[0], kCount, ncclFloat, captured, comms[0], stream),
            ncclInvalidUsage);
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(stream, &graph);
  if (graph != nullptr) cudaGraphDestroy(graph);

  for (int r = 0; r < kRanks; ++r) {
    cudaFree(data[r]);
    cudaFree(scalar[r]);
  }
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
