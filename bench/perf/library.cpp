// Tutti as a library under measurement; see library.h.
#include "bench/perf/library.h"

#include <algorithm>
#include <map>
#include <thread>

namespace tutti::perf {

bool Library::streams_are_idle() const {
  return std::all_of(streams_.begin(), streams_.end(),
                     [](const auto& stream) { return stream->idle(); });
}

Tutti::Tutti(std::span<Communicator> ranks, std::span<const int> devices, bool started)
    : ranks_(ranks), started_(started) {
  std::map<int, void*> of_device;
  for (const int device : devices) {
    void*& stream = of_device[device];
    if (stream == nullptr) {
      gpu::use(device);
      streams_.push_back(std::make_unique<gpu::Stream>());
      stream = streams_.back()->handle();
    }
    stream_of_.push_back(stream);
  }
}

void Tutti::run(std::size_t local, const Call& call) {
  if (stream_of_.empty() && started_) {
    ranks_[local].start(call).wait();
  } else if (stream_of_.empty()) {
    ranks_[local].run(call);
  } else {
    ranks_[local].run(call, stream_of_[local]);
  }
}

// The kernels end by themselves: at the communicator's time-out, or when a rank aborts.
void Tutti::finish() {
  while (!streams_are_idle()) std::this_thread::yield();
}

// A call throws what has failed before it; this one moves nothing.
void Tutti::check() {
  if (stream_of_.empty()) return;
  Call nothing;
  nothing.collective = Collective::all_reduce;
  for (std::size_t local = 0; local < ranks_.size(); ++local) run(local, nothing);
}

}  // namespace tutti::perf
