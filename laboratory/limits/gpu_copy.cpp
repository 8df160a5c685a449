// The GPU's limit: what it costs to read some bytes of its memory once and to write as many once.
// An all_reduce of n ranks on one GPU can be no faster than a copy of n times its size: every
// rank's input has to be read, every rank's output has to be written.
//
//     gpu_copy 128M 256M 1G        a line for each size: bytes, microseconds, GB/s, which way
//
// The bandwidth counts the bytes read and the bytes written. There are two ways, the runtime's
// copy and a kernel's; the faster one counts, and of its rounds the fastest. Successive copies use
// different memory, so that they do not find their data in the cache. Exit status 77: no GPU.
#include "laboratory/limits/gpu_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "bench/perf/buffer.h"
#include "bench/perf/gpu.h"
#include "core/error.h"
#include "core/settings.h"

namespace tutti::limits {
namespace {

namespace gpu = perf::gpu;

constexpr std::size_t kSmallestBuffer = std::size_t{1} << 30;
constexpr int kRounds = 5;
constexpr int kCopies = 20;  // in each
constexpr int kNoGpu = 77;

struct CopyMethod {
  const char* name;
  const char* (*copy)(void* to, const void* from, std::size_t bytes, void* stream);
};
constexpr CopyMethod kCopyMethods[] = {{"runtime", copy_by_runtime}, {"kernel", copy_by_kernel}};

void wait(const gpu::Stream& stream) {
  while (!stream.idle()) {
  }
}

/// Microseconds of one copy, of the fastest round; the first round is not timed.
double time_copy(const CopyMethod& way, const perf::Buffer& to, const perf::Buffer& from,
                 std::size_t buffer, std::size_t bytes, const gpu::Stream& stream) {
  const std::size_t places = buffer / bytes;
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round <= kRounds; ++round) {
    gpu::Event begin(stream), end(stream);
    begin.record();
    for (int i = 0; i < kCopies; ++i) {
      const std::size_t at = static_cast<std::size_t>(i) % places * bytes;
      const char* const failure =
          way.copy(to.data() + at, from.data() + at, bytes, stream.handle());
      if (failure != nullptr) {
        throw Error(ErrorCode::system, fmt::format("CUDA: a copy of {} bytes: {}", bytes, failure));
      }
    }
    end.record();
    wait(stream);
    if (round > 0) best = std::min(best, end.microseconds_since(begin) / kCopies);
  }
  return best;
}

int run(const std::vector<std::string>& arguments) {
  std::vector<std::size_t> sizes;
  for (const std::string& argument : arguments) {
    const std::size_t bytes = parse_bytes(argument);
    if (bytes == 0 || bytes % 16 != 0) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: sizes are multiples of 16 bytes", argument));
    }
    sizes.push_back(bytes);
  }
  if (sizes.empty()) throw Error(ErrorCode::invalid_argument, "usage: gpu_copy SIZE...");
  std::string why;
  if (gpu::count(why) == 0) {
    fmt::print("gpu_copy: {}\n", why);
    return kNoGpu;
  }
  gpu::use(0);
  const gpu::Description device = gpu::describe(0);
  fmt::print("# copies on [{}] {}: every byte is read once and written once\n", device.bus_id,
             device.name);
  fmt::print("# {:>12}  {:>9}  {:>8}  way\n# {:>12}  {:>9}  {:>8}\n", "size", "time", "moved",
             "(B)", "(us)", "(GB/s)");
  const std::size_t buffer =
      std::max(kSmallestBuffer, *std::max_element(sizes.begin(), sizes.end()));
  const perf::Buffer from(gpu::allocate(buffer), gpu::deallocate);
  const perf::Buffer to(gpu::allocate(buffer), gpu::deallocate);
  const gpu::Stream stream;
  for (const std::size_t bytes : sizes) {
    double best = std::numeric_limits<double>::infinity();
    const char* name = "";
    for (const CopyMethod& way : kCopyMethods) {
      const double time = time_copy(way, to, from, buffer, bytes, stream);
      if (time < best) name = way.name;
      best = std::min(best, time);
    }
    fmt::print("  {:>12}  {:>9.2f}  {:>8.1f}  {}\n", bytes, best,
               2 * static_cast<double>(bytes) / best * 1e-3, name);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace tutti::limits

int main(int argc, char** argv) {
  try {
    return tutti::limits::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_copy: {}\n", error.what());
    return 1;
  }
}
