// libtutti_cuda.so: its interface (transport/gpu/cuda_module.h), through the CUDA runtime, which is
// linked statically.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "core/error.h"
#include "core/module.h"
#include "execute/cuda/cuda_device.h"
#include "transport/gpu/cuda_error.h"
#include "transport/gpu/cuda_module.h"
#include "tutti_cuda_interface.h"

namespace tutti {
namespace {

cudaStream_t stream_of(void* handle) { return static_cast<cudaStream_t>(handle); }
cudaEvent_t event_of(void* handle) { return static_cast<cudaEvent_t>(handle); }
cudaGraph_t graph_of(void* handle) { return static_cast<cudaGraph_t>(handle); }

class CudaRuntime final : public Cuda {
 public:
  // --- GPUs ---

  int count(std::string& why) const override { return device::cuda_devices(why); }
  int current() const override {
    int ordinal = 0;
    check_cuda(cudaGetDevice(&ordinal), "cudaGetDevice");
    return ordinal;
  }
  void use(int ordinal) const override {
    check_cuda(cudaSetDevice(ordinal), fmt::format("GPU {}", ordinal));
  }
  Description describe(int ordinal) const override {
    cudaDeviceProp properties{};
    check_cuda(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
    return {fmt::format("{:04x}:{:02x}:{:02x}", properties.pciDomainID, properties.pciBusID,
                        properties.pciDeviceID),
            properties.name};
  }
  std::shared_ptr<device::Device> open(int ordinal) const override {
    // These outlive communicators that end with the process.
    static auto* const mutex = new std::mutex;
    static auto* const open = new std::map<int, std::weak_ptr<device::Device>>;
    const std::lock_guard lock(*mutex);
    std::shared_ptr<device::Device> gpu = (*open)[ordinal].lock();
    if (!gpu) (*open)[ordinal] = gpu = std::make_shared<device::CudaDevice>(ordinal);
    return gpu;
  }

  // --- Memory ---

  void* allocate(std::size_t bytes) const override {
    void* memory = nullptr;
    check_cuda(cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)),
               fmt::format("{} bytes of GPU memory", bytes));
    return memory;
  }
  void free(void* memory) const noexcept override { cudaFree(memory); }
  void zero(void* memory, std::size_t bytes) const override {
    check_cuda(cudaMemset(memory, 0, bytes), "cudaMemset");
    check_cuda(cudaDeviceSynchronize(), "cudaMemset");
  }
  std::size_t bytes_in_use() const override {
    std::size_t free = 0;
    std::size_t total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return total - free;
  }
  void* duplicate(const void* memory, std::size_t bytes, void* stream) const override {
    void* copy = nullptr;
    check_cuda(cudaMallocAsync(&copy, std::max<std::size_t>(bytes, 1), stream_of(stream)),
               fmt::format("{} bytes of GPU memory", bytes));
    const cudaError_t result =
        cudaMemcpyAsync(copy, memory, bytes, cudaMemcpyDeviceToDevice, stream_of(stream));
    if (result != cudaSuccess) free_duplicate(copy, stream);
    check_cuda(result, "a copy of a buffer");
    return copy;
  }
  void free_duplicate(void* memory, void* stream) const noexcept override {
    cudaFreeAsync(memory, stream_of(stream));
  }
  void read(void* to, const void* from, std::size_t bytes, void* stream) const override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check_cuda(cudaStreamIsCapturing(stream_of(stream), &status), "cudaStreamIsCapturing");
    if (status != cudaStreamCaptureStatusNone) {
      throw Error(
          ErrorCode::invalid_usage,
          "GPU memory is to be read by the host, which cannot be while its stream is captured "
          "into a graph");
    }
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_of(stream)),
               "a copy from the GPU");
    check_cuda(cudaStreamSynchronize(stream_of(stream)), "a copy from the GPU");
  }

  // --- Streams, recordings and moments ---

  void* make_stream() const override {
    cudaStream_t stream = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    return stream;
  }
  void destroy_stream(void* stream) const noexcept override {
    cudaStreamDestroy(stream_of(stream));
  }
  void copy(void* to, const void* from, std::size_t bytes, void* stream) const override {
    check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_of(stream)), "a copy");
    check_cuda(cudaStreamSynchronize(stream_of(stream)), "a copy");
  }
  bool is_idle(void* stream) const override {
    const cudaError_t result = cudaStreamQuery(stream_of(stream));
    if (result == cudaErrorNotReady) {
      cudaGetLastError();  // it is no error, and must not look like a later call's
      return false;
    }
    check_cuda(result, "what ran on a stream");
    return true;
  }

  void begin_recording(void* stream) const override {
    // Of this thread alone: others may allocate meanwhile.
    check_cuda(cudaStreamBeginCapture(stream_of(stream), cudaStreamCaptureModeThreadLocal),
               "cudaStreamBeginCapture");
  }
  void* end_recording(void* stream) const override {
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamEndCapture(stream_of(stream), &graph), "cudaStreamEndCapture");
    return graph;
  }
  void cancel_recording(void* stream) const noexcept override {
    cudaGraph_t graph = nullptr;
    if (cudaStreamEndCapture(stream_of(stream), &graph) == cudaSuccess) cudaGraphDestroy(graph);
    cudaGetLastError();
  }
  void* instantiate(void* graph, void* stream) const override {
    cudaGraphExec_t executable = nullptr;
    check_cuda(cudaGraphInstantiate(&executable, graph_of(graph), 0), "cudaGraphInstantiate");
    const cudaError_t result = cudaGraphUpload(executable, stream_of(stream));
    if (result != cudaSuccess) cudaGraphExecDestroy(executable);
    check_cuda(result, "cudaGraphUpload");
    return executable;
  }
  void launch(void* executable, void* stream) const override {
    check_cuda(cudaGraphLaunch(static_cast<cudaGraphExec_t>(executable), stream_of(stream)),
               "cudaGraphLaunch");
  }
  void destroy_graph(void* graph, void* executable) const noexcept override {
    if (executable != nullptr) cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(executable));
    if (graph != nullptr) cudaGraphDestroy(graph_of(graph));
  }

  void* make_event() const override {
    cudaEvent_t event = nullptr;
    check_cuda(cudaEventCreate(&event), "cudaEventCreate");
    return event;
  }
  void destroy_event(void* event) const noexcept override { cudaEventDestroy(event_of(event)); }
  void record(void* event, void* stream) const override {
    check_cuda(cudaEventRecord(event_of(event), stream_of(stream)), "cudaEventRecord");
  }
  double microseconds_between(void* earlier, void* later) const override {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, event_of(earlier), event_of(later)),
               "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e3;
  }
};

const CudaRuntime instance;

}  // namespace

const Module tutti_module{TUTTI_CUDA_INTERFACE, static_cast<const Cuda*>(&instance)};

}  // namespace tutti
