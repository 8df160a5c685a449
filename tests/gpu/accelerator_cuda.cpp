// The GPUs, for device_rank.cpp.
#include <cuda_runtime_api.h>

#include <string>

#include "core/error.h"
#include "tests/device/accelerator.h"

namespace tutti::test {
namespace {

void check(cudaError_t result, const char* what) {
  if (result == cudaSuccess) return;
  throw Error(ErrorCode::system, std::string(what) + ": " + cudaGetErrorString(result));
}

class Cuda : public Accelerator {
 public:
  explicit Cuda(int ordinal) {
    check(cudaSetDevice(ordinal), "cudaSetDevice");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  ~Cuda() override { cudaStreamDestroy(stream_); }

  void adopt(Communicator&) override {}
  using Accelerator::allocate;
  std::byte* allocate(std::size_t bytes, Memory kind) override {
    void* memory = nullptr;
    if (kind == Memory::shareable) {
      check(cudaMalloc(&memory, bytes), "cudaMalloc");
    } else {
      check(cudaMallocAsync(&memory, bytes, stream_), "cudaMallocAsync");
      synchronize();
    }
    return static_cast<std::byte*>(memory);
  }
  void release(std::byte* at, Memory kind) override {
    if (kind == Memory::shareable) {
      check(cudaFree(at), "cudaFree");
    } else {
      check(cudaFreeAsync(at, stream_), "cudaFreeAsync");
    }
  }
  void write(std::byte* to, const void* from, std::size_t bytes) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream_), "a write");
    synchronize();
  }
  void read(void* to, const std::byte* from, std::size_t bytes) override {
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "a read");
    synchronize();
  }
  void* stream() override { return stream_; }
  void synchronize() override { check(cudaStreamSynchronize(stream_), "what was on the stream"); }
  void repeat(int times, const std::function<void()>& body) override {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "a capture");
    body();
    check(cudaStreamEndCapture(stream_, &graph), "a capture");
    check(cudaGraphInstantiate(&executable, graph, 0), "a graph");
    for (int i = 0; i < times; ++i) check(cudaGraphLaunch(executable, stream_), "a graph");
    synchronize();
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  }
  int many_launches() const override { return 100; }
  std::size_t free_bytes() override {
    std::size_t free = 0;
    std::size_t total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return free;
  }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace

int accelerators() {
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  return count;
}
std::unique_ptr<Accelerator> open_accelerator(int ordinal) {
  return std::make_unique<Cuda>(ordinal);
}

}  // namespace tutti::test
