// A build without CUDA.
#include "bench/perf/gpu.h"
#include "core/error.h"

namespace tutti::perf::gpu {

namespace {

constexpr const char* kWhy =
    "these programs were built without CUDA, so they have host memory only (docs/building.md)";

[[noreturn]] void refuse() { throw Error(ErrorCode::system, kWhy); }

}  // namespace

int count(std::string& why) {
  why = kWhy;
  return 0;
}

Description describe(int) { refuse(); }
void use(int) { refuse(); }
std::byte* allocate(std::size_t) { refuse(); }
void deallocate(std::byte*) noexcept {}
std::int64_t memory_in_use() { refuse(); }

Stream::Stream() { refuse(); }
Stream::~Stream() = default;
void Stream::copy(void*, const void*, std::size_t) const { refuse(); }
bool Stream::idle() const { refuse(); }

Graph::Graph(const Stream& stream) : stream_(stream.handle()) { refuse(); }
Graph::~Graph() = default;
void Graph::finish() { refuse(); }
void Graph::launch() const { refuse(); }

Event::Event(const Stream& stream) : stream_(stream.handle()) { refuse(); }
Event::~Event() = default;
void Event::record() { refuse(); }
double Event::microseconds_since(const Event&) const { refuse(); }

}  // namespace tutti::perf::gpu
