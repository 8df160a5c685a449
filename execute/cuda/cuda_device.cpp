// The GPU itself, its kernels, and what streams do; its memory is in cuda_device_memory.cpp.
#include "execute/cuda/cuda_device.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "core/error.h"
#include "execute/cuda/cuda_scopes.h"
#include "execute/cuda/kernel.h"
#include "transport/gpu/cuda_error.h"
#include "transport/gpu/current_gpu.h"
#include "transport/gpu/gpu_driver.h"

namespace tutti::device {
namespace {

/// Multiprocessors that no launch of ours takes: what spins may wait for a copy or an allocation
/// which the driver does by a kernel, and that must find room.
constexpr int kFreeProcessors = 4;

Device::Identity identity_of(int ordinal) {
  cudaDeviceProp properties{};
  check_cuda(cudaGetDeviceProperties(&properties, ordinal), "the device's properties");
  Device::Identity identity{};
  static_assert(sizeof properties.uuid == sizeof identity);
  std::memcpy(&identity, &properties.uuid, sizeof identity);
  return identity;
}

// By type; integers of both signs have the same.
constexpr std::array kKernels{&kernel_of_uint8,    &kernel_of_uint8,       &kernel_of_uint32,
                              &kernel_of_uint32,   &kernel_of_uint64,      &kernel_of_uint64,
                              &kernel_of_float16,  &kernel_of_float32,     &kernel_of_float64,
                              &kernel_of_bfloat16, &kernel_of_float8_e4m3, &kernel_of_float8_e5m2};
static_assert(kKernels.size() == kDataTypes);

}  // namespace

/// Events that nobody uses any more: to make one takes a while.
class CudaDevice::FreeEvents : public std::enable_shared_from_this<FreeEvents> {
 public:
  FreeEvents() = default;
  FreeEvents(const FreeEvents&) = delete;
  FreeEvents& operator=(const FreeEvents&) = delete;
  ~FreeEvents() {
    for (const cudaEvent_t event : free_) cudaEventDestroy(event);
  }
  Event take() {
    cudaEvent_t event = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        event = free_.back();
        free_.pop_back();
      }
    }
    if (event == nullptr) {
      check_cuda(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
    }
    return {event, [pool = shared_from_this()](void* e) {
              const std::lock_guard lock(pool->mutex_);
              pool->free_.push_back(static_cast<cudaEvent_t>(e));
            }};
  }

 private:
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

const void* kernel_of(DataType type, KernelKind kind) {
  return kKernels[static_cast<std::size_t>(type)](kind);
}

int cuda_devices(std::string& why) {
  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result == cudaSuccess && count > 0) return count;
  cudaGetLastError();  // so that a later call does not report it
  why = result == cudaSuccess ? "none is visible" : cudaGetErrorString(result);
  return 0;
}

CudaDevice::CudaDevice(int ordinal)
    : ordinal_(ordinal), free_events_(std::make_shared<FreeEvents>()) {
  std::string why;
  const int devices = cuda_devices(why);
  if (ordinal < 0 || ordinal >= devices) {
    throw Error(ErrorCode::system,
                fmt::format("there is no CUDA device {}: {}", ordinal,
                            why.empty() ? fmt::format("this process sees {}", devices) : why));
  }
  const CurrentGpu current(ordinal_);
  const Relaxed relaxed;
  int processors = 0;
  check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, ordinal_),
             "the number of multiprocessors");
  int fewest = kMostBlocks;
  for (int t = 0; t < kKernelKinds * kDataTypes; ++t) {
    const void* const kernel = kernel_of(static_cast<DataType>(t / kKernelKinds),
                                         static_cast<KernelKind>(t % kKernelKinds));
    cudaFuncAttributes attributes{};  // which are known only once it is loaded
    check_cuda(cudaFuncGetAttributes(&attributes, kernel), "the kernels of Tutti do not load");
    int blocks = 0;
    check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kThreads, 0),
               "the kernels of Tutti do not run on this device");
    fewest = std::min(fewest, blocks);
  }
  // A slice of a GPU may have few.
  const int free = std::min(kFreeProcessors, processors / 4);
  most_blocks_ = static_cast<std::uint32_t>(fewest * (processors - free));
  identity_ = identity_of(ordinal_);
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  aside_ = stream;
}

CudaDevice::~CudaDevice() {
  const Relaxed relaxed;
  for (const Unused& unused : unused_) free(unused);
  cudaStreamDestroy(stream_of(aside_));
}

void CudaDevice::aside(const std::function<void(void* stream)>& work) {
  const Relaxed relaxed;
  const std::lock_guard lock(mutex_);
  work(aside_);
  check_cuda(cudaStreamSynchronize(stream_of(aside_)), "work beside the kernels");
}

StreamPlace CudaDevice::place(Stream stream) {
  const CurrentGpu current(ordinal_);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long number = 0;
  check_cuda(cudaStreamGetCaptureInfo(stream_of(stream), &status, &number),
             "cudaStreamGetCaptureInfo");
  if (status != cudaStreamCaptureStatusNone) {
    return {reinterpret_cast<std::uintptr_t>(stream), number + 1};
  }
  check_cuda(cudaStreamGetId(stream_of(stream), &number), "cudaStreamGetId");
  return {number, 0};
}

void CudaDevice::upload(std::byte* to, std::span<const std::byte> from) {
  if (from.empty()) return;
  const CurrentGpu current(ordinal_);
  aside([&](void* stream) {
    check_cuda(
        cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream_of(stream)),
        "an upload");
  });
}

void CudaDevice::overwrite(std::byte* to, std::span<const std::byte> from, Stream stream) {
  const CurrentGpu current(ordinal_);
  // From pageable memory the runtime has taken a copy when this returns. It waits for the stream
  // where it takes the copy in pieces, and must not (see read()). Pinned memory is read later.
  constexpr std::size_t kInOnePiece = std::size_t{64} << 10;
  if (from.size() > kInOnePiece && !is_capturing(stream)) wait_for(stream);
  check_cuda(
      cudaMemcpyAsync(to, from.data(), from.size(), cudaMemcpyHostToDevice, stream_of(stream)),
      "an upload");
  if (is_pinned(from.data()) && !is_capturing(stream)) wait_for(stream);
}

void CudaDevice::launch(const Launch& launch, DataType type, std::uint32_t blocks, Stream stream) {
  if (blocks > most_blocks_) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("a launch of {} thread blocks, but the device runs {} side by side, and "
                    "they wait for each other",
                    blocks, most_blocks_));
  }
  const CurrentGpu current(ordinal_);
  void* arguments[] = {const_cast<Launch*>(&launch)};
  {
    const std::lock_guard lock(mutex_);
    unnoted_.push_back(stream);
  }
  // Without the mutex: a launch waits where its stream is far ahead, and what it waits for may wait
  // for another thread's.
  const cudaError_t result = cudaLaunchKernel(kernel_of(type, launch.kernel()), dim3(blocks),
                                              dim3(kThreads), arguments, 0, stream_of(stream));
  if (result != cudaSuccess) forget_unnoted(stream);
  check_cuda(result, "the launch of a collective");
}

void CudaDevice::forget_unnoted(Stream stream) {
  const std::lock_guard lock(mutex_);
  if (const auto launched = std::ranges::find(unnoted_, stream); launched != unnoted_.end()) {
    unnoted_.erase(launched);
  }
}

void CudaDevice::copy(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  const CurrentGpu current(ordinal_);
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(stream)),
             "a copy of a buffer");
}

void CudaDevice::order(Stream first, Stream then) {
  if (first == then) return;
  order(record(first), then);
}

Device::Reach CudaDevice::reach(const Identity& other) {
  if (other == identity_) return Reach::whole_lines;
  int peer = 0;
  std::string why;
  const int devices = cuda_devices(why);
  while (peer < devices && identity_of(peer) != other) ++peer;
  int reaches = 0;
  if (peer == devices || cudaDeviceCanAccessPeer(&reaches, ordinal_, peer) != cudaSuccess ||
      reaches == 0) {
    return Reach::none;
  }
  const CurrentGpu current(ordinal_);
  const Relaxed relaxed;
  const cudaError_t result = cudaDeviceEnablePeerAccess(peer, 0);
  if (result == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();  // so that a later call does not report it
  } else {
    check_cuda(result, fmt::format("GPU {}'s access to the memory of GPU {}", ordinal_, peer));
  }
  // NVLink has atomics, and keeps lines whole; PCIe does neither.
  int atomics = 0;
  check_cuda(
      cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, ordinal_, peer),
      "the link between two GPUs");
  return atomics != 0 ? Reach::whole_lines : Reach::memory;
}

void CudaDevice::as_current(const std::function<void()>& body) {
  const CurrentGpu current(ordinal_);
  body();
}

std::shared_ptr<void> CudaDevice::make_stream() {
  const CurrentGpu current(ordinal_);
  cudaStream_t stream = nullptr;
  check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  return {stream, [](void* s) { cudaStreamDestroy(stream_of(s)); }};
}

Event CudaDevice::record(Stream stream) {
  const CurrentGpu current(ordinal_);
  Event event = free_events_->take();
  check_cuda(cudaEventRecord(event_of(event), stream_of(stream)), "cudaEventRecord");
  return event;
}

void CudaDevice::order(const Event& event, Stream then) {
  if (event == nullptr) return;
  const CurrentGpu current(ordinal_);
  check_cuda(cudaStreamWaitEvent(stream_of(then), event_of(event), 0), "to order two streams");
}

bool CudaDevice::is_over(const Event& event) {
  if (event == nullptr) return true;
  const Relaxed relaxed;
  const cudaError_t result = cudaEventQuery(event_of(event));
  if (result == cudaErrorNotReady) {
    cudaGetLastError();  // so that a later call does not report it
    return false;
  }
  check_cuda(result, "cudaEventQuery");
  return true;
}

void CudaDevice::synchronize(const Event& event) {
  if (event == nullptr) return;
  const Relaxed relaxed;
  check_cuda(cudaEventSynchronize(event_of(event)), "what was on a stream");
}

void CudaDevice::zero(std::byte* memory, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  const CurrentGpu current(ordinal_);
  check_cuda(cudaMemsetAsync(memory, 0, bytes, stream_of(stream)), "zeros");
}

void CudaDevice::read(std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) {
  if (bytes == 0) return;
  const CurrentGpu current(ordinal_);
  // First what is on the stream: a copy to pageable memory that waits for it keeps other threads
  // from launching the kernels that it waits for.
  wait_for(stream);
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_of(stream)),
             "a copy to the host");
  wait_for(stream);
}

void CudaDevice::wait_for(Stream stream) {
  check_cuda(cudaStreamSynchronize(stream_of(stream)), "what was on a stream");
}

}  // namespace tutti::device
