// What is made with CUDA's toolkit: a module of its own, libtutti_cuda.so, that is opened at the
// first memory of a GPU, or where a GPU is asked for (core/module.h). The library itself, and
// everything else, neither needs the toolkit nor links anything of it.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace tutti {
namespace device {
class Device;
}

/// The interface of the module. Where nothing else is said, functions are about the calling
/// thread's GPU and put work on a stream (a cudaStream_t) without waiting for it; they throw
/// Error(system), and any thread may call them.
class Cuda {
 public:
  // --- GPUs ---

  /// GPUs that this process can use; 0 where there are none: `why`, in words. Starts CUDA.
  virtual int count(std::string& why) const = 0;
  /// The calling thread's.
  virtual int current() const = 0;
  /// Makes it the calling thread's.
  virtual void use(int ordinal) const = 0;
  struct Description {
    std::string bus_id;  // "0000:19:00"
    std::string name;    // "NVIDIA H200"
  };
  virtual Description describe(int ordinal) const = 0;
  /// What communicators run on; those of one GPU share it, as all kernels are loaded.
  virtual std::shared_ptr<device::Device> open(int ordinal) const = 0;

  // --- Memory ---

  virtual void* allocate(std::size_t bytes) const = 0;
  virtual void free(void* memory) const noexcept = 0;
  /// Waits for the GPU.
  virtual void zero(void* memory, std::size_t bytes) const = 0;
  /// Memory of the GPU that all programs together use.
  virtual std::size_t bytes_in_use() const = 0;
  /// A copy of GPU memory for work that comes on `stream`. It is made, used and freed in the order
  /// of that stream; the stream may be captured.
  virtual void* duplicate(const void* memory, std::size_t bytes, void* stream) const = 0;
  virtual void free_duplicate(void* memory, void* stream) const noexcept = 0;
  /// Copies from a GPU what is there after all work on `stream`, for which it waits. Throws
  /// Error(invalid_usage) while the stream is captured.
  virtual void read(void* to, const void* from, std::size_t bytes, void* stream) const = 0;

  // --- Streams, recordings and moments, for programs that measure (bench/perf/gpu.h) ---

  /// Waits for no other one.
  virtual void* make_stream() const = 0;
  virtual void destroy_stream(void* stream) const noexcept = 0;
  /// Between host and GPU, either way; done on return.
  virtual void copy(void* to, const void* from, std::size_t bytes, void* stream) const = 0;
  /// Whether everything on it is done; throws if something has failed.
  virtual bool is_idle(void* stream) const = 0;

  /// From here on this thread's work on `stream` is recorded, and does not run.
  virtual void begin_recording(void* stream) const = 0;
  /// A cudaGraph_t.
  virtual void* end_recording(void* stream) const = 0;
  /// Drops what is recorded.
  virtual void cancel_recording(void* stream) const noexcept = 0;
  /// A cudaGraphExec_t, ready to be launched on `stream`.
  virtual void* instantiate(void* graph, void* stream) const = 0;
  virtual void launch(void* executable, void* stream) const = 0;
  /// Either may be null.
  virtual void destroy_graph(void* graph, void* executable) const noexcept = 0;

  /// A cudaEvent_t that keeps the time.
  virtual void* make_event() const = 0;
  virtual void destroy_event(void* event) const noexcept = 0;
  virtual void record(void* event, void* stream) const = 0;
  /// Both must have happened.
  virtual double microseconds_between(void* earlier, void* later) const = 0;

 protected:
  ~Cuda() = default;
};

/// The module, which is opened by the first call. Throws Error(system) with what to do where it is
/// missing, or of another build. From any thread.
const Cuda& cuda();

/// How many GPUs this process can use; 0 where there is no driver, or no module. `why`: in words,
/// if it is not null. Starts CUDA where there is a driver.
int gpu_count(std::string* why = nullptr);

}  // namespace tutti
