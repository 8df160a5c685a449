// GPUs for the *_perf programs, through libtutti_cuda.so. Where it, a driver or a GPU is missing,
// everything except count() throws Error(system). A thread has a current GPU, as in CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "transport/gpu/cuda_module.h"

namespace tutti::perf::gpu {

/// GPUs that this process sees. None: `why`, in words.
int count(std::string& why);

using Description = Cuda::Description;
Description describe(int device);

/// Makes it the calling thread's.
void use(int device);

/// Zeroed memory of the thread's GPU (cudaMalloc).
std::byte* allocate(std::size_t bytes);
void deallocate(std::byte* memory) noexcept;
/// Bytes in use on the thread's GPU, by all programs.
std::int64_t memory_in_use();

/// A stream of the thread's GPU that waits for no other.
class Stream {
 public:
  Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  void* handle() const { return stream_; }
  int device() const { return device_; }
  /// Between host and GPU, either way; done on return.
  void copy(void* to, const void* from, std::size_t bytes) const;
  /// Whether everything on it is done; throws if something has failed.
  bool idle() const;

 private:
  void* stream_ = nullptr;
  int device_ = 0;
};

/// A recording of the work that a thread puts on a stream, for many launches.
class Graph {
 public:
  /// Starts recording: from here on the thread's work on `stream` does not run.
  explicit Graph(const Stream& stream);
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();

  /// Ends recording, and gets ready to launch.
  void finish();
  void launch() const;

 private:
  void* stream_;
  void* graph_ = nullptr;
  void* executable_ = nullptr;
};

/// A moment on a stream.
class Event {
 public:
  explicit Event(const Stream& stream);
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();

  /// After the work that is on the stream so far.
  void record();
  /// Both must have happened.
  double microseconds_since(const Event& earlier) const;

 private:
  void* stream_;
  void* event_ = nullptr;
};

}  // namespace tutti::perf::gpu
