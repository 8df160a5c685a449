#include "tests/collectives/cuda/cuda_runtime/runtime.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "tests/collectives/cuda/cuda_runtime/kernels.h"

using Work = std::function<void()>;

namespace {

/// What is put on a stream, and on those that join it, until the capture ends.
struct Capture {
  std::thread::id thread;
  cudaStreamCaptureMode mode;
  bool spoilt = false;
  std::vector<Work> nodes;
  unsigned long long id = 0;
};

}  // namespace

struct CUstream_st {
  unsigned long long id = 0;
  std::shared_ptr<Capture> capture;
  std::deque<Work> queue;  // its front is being done
  std::jthread worker;     // the last, so that it ends first
};
struct CUevent_st {
  std::shared_ptr<bool> done = std::make_shared<bool>(true);
  std::shared_ptr<Capture> capture;  // it was recorded in
};
struct CUgraph_st {
  std::vector<Work> nodes;
};
struct CUgraphExec_st {
  std::vector<Work> nodes;
};

namespace {

constexpr int kDevices = 2;
constexpr int kProcessors = 132;

struct State {
  std::mutex mutex;  // of all that is here, and of streams and events
  std::condition_variable changed;
  std::vector<std::shared_ptr<Capture>> captures;
  std::vector<std::string> bad;
  unsigned long long streams = 0;
  unsigned long long captured = 0;  // captures, so far
  int kernels = 0;                  // that run
};
State& state() {
  static auto* const instance = new State;
  return *instance;
}
using Lock = std::unique_lock<std::mutex>;

thread_local int device_of_thread = 0;
thread_local cudaStreamCaptureMode mode_of_thread = cudaStreamCaptureModeGlobal;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t fail(cudaError_t error) { return last_error = error; }
cudaError_t bad_call(const std::string& what, cudaError_t error) {
  state().bad.push_back(what);
  return fail(error);
}

/// A call that is refused while a stream is captured, unless its thread has said that it knows.
cudaError_t check_captures(const char* call) {
  if (mode_of_thread == cudaStreamCaptureModeRelaxed) return cudaSuccess;
  for (const auto& c : state().captures) {
    if (c->mode == cudaStreamCaptureModeRelaxed) continue;
    const bool is_ours = c->thread == std::this_thread::get_id();
    const bool are_global =
        c->mode == cudaStreamCaptureModeGlobal && mode_of_thread == cudaStreamCaptureModeGlobal;
    if (!is_ours && !are_global) continue;
    c->spoilt = true;
    return bad_call(std::string(call) + " while a stream is captured",
                    cudaErrorStreamCaptureUnsupported);
  }
  return cudaSuccess;
}

/// One that waits for all that the GPU does. (Here it does not, so that the test goes on.)
cudaError_t check_kernels(const char* call) {
  if (const cudaError_t result = check_captures(call); result != cudaSuccess) return result;
  if (state().kernels > 0) state().bad.push_back(std::string(call) + " while a kernel runs");
  return cudaSuccess;
}

cudaError_t allocate(const char* call, void** memory, size_t bytes) {
  const Lock lock(state().mutex);
  if (const cudaError_t result = check_captures(call); result != cudaSuccess) return result;
  *memory = tutti::test::allocate_for_kernels(bytes);
  return cudaSuccess;
}

cudaError_t give_back(const char* call, void* memory) {
  const Lock lock(state().mutex);
  if (const cudaError_t result = check_kernels(call); result != cudaSuccess) return result;
  tutti::test::free_for_kernels(memory);
  return cudaSuccess;
}

/// Adds `work` to what a stream does, or to what is captured of it. Waits where the stream is far
/// behind, as CUDA does (after a thousand or so).
cudaError_t put(Lock& lock, cudaStream_t stream, Work work) {
  constexpr std::size_t kMostBehind = 64;
  if (stream->capture) {
    stream->capture->nodes.push_back(std::move(work));
    return cudaSuccess;
  }
  state().changed.wait(lock, [&] { return stream->queue.size() < kMostBehind; });
  stream->queue.push_back(std::move(work));
  state().changed.notify_all();
  return cudaSuccess;
}

void serve(CUstream_st& stream, const std::stop_token& stop) {
  Lock lock(state().mutex);
  for (;;) {
    state().changed.wait(lock, [&] { return !stream.queue.empty() || stop.stop_requested(); });
    if (stream.queue.empty()) return;
    const Work work = stream.queue.front();
    lock.unlock();
    work();
    lock.lock();
    stream.queue.pop_front();
    state().changed.notify_all();
  }
}

Work kernel(const void* function, const tutti::device::Launch& launch, unsigned blocks) {
  return [=] {
    {
      const Lock lock(state().mutex);
      ++state().kernels;
    }
    tutti::test::run_kernel(function, launch, blocks);
    const Lock lock(state().mutex);
    --state().kernels;
    state().changed.notify_all();
  };
}

}  // namespace

namespace tutti::test {

std::vector<std::string> bad_cuda_calls() {
  const Lock lock(state().mutex);
  return std::exchange(state().bad, {});
}

int cuda_kernels_running() {
  const Lock lock(state().mutex);
  return state().kernels;
}

}  // namespace tutti::test

extern "C" {

// --- Devices -------------------------------------------------------------------------------------

const char* cudaGetErrorString(cudaError_t) { return "an error of the runtime of threads"; }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorStreamCaptureUnsupported ? "cudaErrorStreamCaptureUnsupported" : "error";
}
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }
cudaError_t cudaGetDevice(int* device) {
  *device = device_of_thread;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  device_of_thread = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = kDevices;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  std::memset(static_cast<void*>(properties), 0, sizeof *properties);
  properties->uuid.bytes[0] = static_cast<char>(device + 1);
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
  *value = kProcessors;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr, int, int) {
  *value = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int, int) {
  *can = 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int, size_t) {
  *blocks = 1;
  return cudaSuccess;
}

// --- Memory --------------------------------------------------------------------------------------

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return allocate("cudaMalloc", memory, bytes);
}
cudaError_t cudaFree(void* memory) { return give_back("cudaFree", memory); }
cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  return allocate("cudaHostAlloc", memory, bytes);
}
cudaError_t cudaFreeHost(void* memory) { return give_back("cudaFreeHost", memory); }
cudaError_t cudaHostRegister(void*, size_t, unsigned) {
  const Lock lock(state().mutex);
  return check_captures("cudaHostRegister");
}
cudaError_t cudaHostUnregister(void*) {
  const Lock lock(state().mutex);
  return check_kernels("cudaHostUnregister");
}
cudaError_t cudaHostGetDevicePointer(void** seen, void* memory, unsigned) {
  *seen = memory;
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  Lock lock(state().mutex);
  return put(lock, stream, [=] { std::memset(memory, value, bytes); });
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  Lock lock(state().mutex);
  if (stream->capture && kind != cudaMemcpyDeviceToDevice) {
    return bad_call("a copy of the host's memory is captured", cudaErrorInvalidValue);
  }
  put(lock, stream, [=] { std::memcpy(to, from, bytes); });
  // Of the host's memory, if it is not pinned: it may have changed afterwards.
  if (kind != cudaMemcpyDeviceToDevice) {
    state().changed.wait(lock, [&] { return stream->queue.empty(); });
  }
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *free = *total = size_t{64} << 30;
  return cudaSuccess;
}

// --- Streams, events, kernels --------------------------------------------------------------------

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  const Lock lock(state().mutex);
  *stream = new CUstream_st;
  (*stream)->id = ++state().streams;
  (*stream)->worker = std::jthread([s = *stream](const std::stop_token& stop) { serve(*s, stop); });
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    const Lock lock(state().mutex);
    stream->worker.request_stop();
    state().changed.notify_all();
  }
  stream->worker.join();
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  *id = stream->id;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  Lock lock(state().mutex);
  if (stream->capture) {
    return bad_call("a captured stream is waited for", cudaErrorStreamCaptureUnsupported);
  }
  if (const cudaError_t r = check_captures("cudaStreamSynchronize"); r != cudaSuccess) return r;
  state().changed.wait(lock, [&] { return stream->queue.empty(); });
  return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = new CUevent_st;
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  Lock lock(state().mutex);
  event->capture = stream->capture;
  event->done = std::make_shared<bool>(stream->capture != nullptr);
  if (stream->capture) return cudaSuccess;
  return put(lock, stream, [done = event->done] {
    const Lock inner(state().mutex);
    *done = true;
  });
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  Lock lock(state().mutex);
  if (event->capture) {
    if (stream->capture && stream->capture != event->capture) {
      return bad_call("two captures are ordered", cudaErrorStreamCaptureMerge);
    }
    stream->capture = event->capture;
    return cudaSuccess;
  }
  if (stream->capture) {
    return bad_call("a captured stream waits for what is not", cudaErrorStreamCaptureIsolation);
  }
  return put(lock, stream, [done = event->done] {
    Lock inner(state().mutex);
    state().changed.wait(inner, [&] { return *done; });
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Lock lock(state().mutex);
  if (const cudaError_t r = check_captures("cudaEventQuery"); r != cudaSuccess) return r;
  return *event->done ? cudaSuccess : fail(cudaErrorNotReady);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  Lock lock(state().mutex);
  if (const cudaError_t r = check_captures("cudaEventSynchronize"); r != cudaSuccess) return r;
  state().changed.wait(lock, [done = event->done] { return *done; });
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3, void** arguments, size_t,
                             cudaStream_t stream) {
  Lock lock(state().mutex);
  return put(lock, stream,
             kernel(function, *static_cast<const tutti::device::Launch*>(arguments[0]), grid.x));
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  Lock lock(state().mutex);
  return put(lock, stream, [=] { function(data); });
}

// --- Captures and graphs -------------------------------------------------------------------------

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, mode_of_thread);
  return cudaSuccess;
}
#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, size_t*) {
#else
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t*, const cudaGraphNode_t**,
                                     size_t*) {
#endif
  const Lock lock(state().mutex);
  *status = stream->capture ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  if (stream->capture) *id = stream->capture->id;
  return cudaSuccess;
}
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  const Lock lock(state().mutex);
  stream->capture = std::make_shared<Capture>(
      Capture{std::this_thread::get_id(), mode, false, {}, state().captured++});
  state().captures.push_back(stream->capture);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock(state().mutex);
  // Streams that have joined stay in it here; nobody uses them any more.
  const auto capture = std::exchange(stream->capture, nullptr);
  std::erase(state().captures, capture);
  if (capture->spoilt) return fail(cudaErrorStreamCaptureInvalidated);
  *graph = new CUgraph_st{capture->nodes};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  *executable = new CUgraphExec_st{graph->nodes};
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  Lock lock(state().mutex);
  for (const Work& work : executable->nodes) put(lock, stream, work);
  return cudaSuccess;
}

}  // extern "C"
