#include "bench/perf/gpu.h"

#include <fmt/format.h>

namespace tutti::perf::gpu {

int count(std::string& why) {
  std::string reason;
  const int devices = gpu_count(&reason);
  if (devices == 0) why = "no CUDA device: " + reason;
  return devices;
}

Description describe(int device) { return cuda().describe(device); }
void use(int device) { cuda().use(device); }

std::byte* allocate(std::size_t bytes) {
  void* const memory = cuda().allocate(bytes);
  try {
    cuda().zero(memory, bytes);  // waits, as streams that wait for no other use it next
  } catch (...) {
    cuda().free(memory);
    throw;
  }
  return static_cast<std::byte*>(memory);
}
void deallocate(std::byte* memory) noexcept { cuda().free(memory); }

std::int64_t memory_in_use() { return static_cast<std::int64_t>(cuda().bytes_in_use()); }

Stream::Stream() : stream_(cuda().make_stream()), device_(cuda().current()) {}
Stream::~Stream() { cuda().destroy_stream(stream_); }
void Stream::copy(void* to, const void* from, std::size_t bytes) const {
  cuda().copy(to, from, bytes, stream_);
}
bool Stream::idle() const { return cuda().is_idle(stream_); }

Graph::Graph(const Stream& stream) : stream_(stream.handle()) { cuda().begin_recording(stream_); }
Graph::~Graph() {
  // Left by an exception: the stream must not stay in a recording.
  if (graph_ == nullptr) cuda().cancel_recording(stream_);
  cuda().destroy_graph(graph_, executable_);
}
void Graph::finish() {
  graph_ = cuda().end_recording(stream_);
  executable_ = cuda().instantiate(graph_, stream_);
}
void Graph::launch() const { cuda().launch(executable_, stream_); }

Event::Event(const Stream& stream) : stream_(stream.handle()) {
  use(stream.device());
  event_ = cuda().make_event();
}
Event::~Event() { cuda().destroy_event(event_); }
void Event::record() { cuda().record(event_, stream_); }
double Event::microseconds_since(const Event& earlier) const {
  return cuda().microseconds_between(earlier.event_, event_);
}

}  // namespace tutti::perf::gpu
