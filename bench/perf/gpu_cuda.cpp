// Through the CUDA runtime, linked statically; see gpu.h.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>

#include "bench/perf/gpu.h"
#include "core/error.h"
#include "transport/gpu/cuda_error.h"

namespace tutti::perf::gpu {

namespace {

cudaStream_t stream_of(void* handle) { return static_cast<cudaStream_t>(handle); }
cudaEvent_t event_of(void* handle) { return static_cast<cudaEvent_t>(handle); }

}  // namespace

int count(std::string& why) {
  int devices = 0;
  const cudaError_t result = cudaGetDeviceCount(&devices);
  if (result == cudaSuccess && devices > 0) return devices;
  cudaGetLastError();  // so that a later call does not report it
  why = fmt::format("no CUDA device: {}",
                    result == cudaSuccess ? "none is visible" : cudaGetErrorString(result));
  return 0;
}

Description describe(int device) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return {fmt::format("{:04x}:{:02x}:{:02x}", properties.pciDomainID, properties.pciBusID,
                      properties.pciDeviceID),
          properties.name};
}

void use(int device) { check_cuda(cudaSetDevice(device), fmt::format("GPU {}", device)); }

std::byte* allocate(std::size_t bytes) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes), fmt::format("{} bytes of GPU memory", bytes));
  const cudaError_t result = cudaMemset(memory, 0, bytes);
  if (result != cudaSuccess) cudaFree(memory);
  check_cuda(result, "cudaMemset");
  check_cuda(cudaDeviceSynchronize(), "cudaMemset");  // streams that wait for no other use it next
  return static_cast<std::byte*>(memory);
}

void deallocate(std::byte* memory) noexcept { cudaFree(memory); }

std::int64_t memory_in_use() {
  std::size_t free = 0;
  std::size_t total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<std::int64_t>(total - free);
}

Stream::Stream() {
  check_cuda(cudaGetDevice(&device_), "cudaGetDevice");
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  stream_ = stream;
}

Stream::~Stream() { cudaStreamDestroy(stream_of(stream_)); }

void Stream::copy(void* to, const void* from, std::size_t bytes) const {
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream_)), "a copy");
  check_cuda(cudaStreamSynchronize(stream_of(stream_)), "a copy");
}

bool Stream::idle() const {
  const cudaError_t result = cudaStreamQuery(stream_of(stream_));
  if (result == cudaErrorNotReady) {
    cudaGetLastError();  // it is no error, and must not look like a later call's
    return false;
  }
  check_cuda(result, "what ran on a stream");
  return true;
}

Graph::Graph(const Stream& stream) : stream_(stream.handle()) {
  // Of this thread alone: others may allocate meanwhile.
  check_cuda(cudaStreamBeginCapture(stream_of(stream_), cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture");
}

Graph::~Graph() {
  if (executable_ != nullptr) {
    cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable_));
  } else {  // left by an exception: the stream must not stay in capture
    cudaGraph_t graph = nullptr;
    if (graph_ == nullptr && cudaStreamEndCapture(stream_of(stream_), &graph) == cudaSuccess) {
      graph_ = graph;
    }
    cudaGetLastError();
  }
  if (graph_ != nullptr) cudaGraphDestroy(static_cast<cudaGraph_t>(graph_));
}

void Graph::finish() {
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamEndCapture(stream_of(stream_), &graph), "cudaStreamEndCapture");
  graph_ = graph;
  cudaGraphExec_t executable = nullptr;
  check_cuda(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  executable_ = executable;
  check_cuda(cudaGraphUpload(executable, stream_of(stream_)), "cudaGraphUpload");
}

void Graph::launch() const {
  check_cuda(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable_), stream_of(stream_)),
             "cudaGraphLaunch");
}

Event::Event(const Stream& stream) : stream_(stream.handle()) {
  use(stream.device());
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreate(&event), "cudaEventCreate");
  event_ = event;
}

Event::~Event() { cudaEventDestroy(event_of(event_)); }

void Event::record() {
  check_cuda(cudaEventRecord(event_of(event_), stream_of(stream_)), "cudaEventRecord");
}

double Event::microseconds_since(const Event& earlier) const {
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, event_of(earlier.event_), event_of(event_)),
             "cudaEventElapsedTime");
  return static_cast<double>(milliseconds) * 1e3;
}

}  // namespace tutti::perf::gpu
