// GPU memory is filled and compared from the host, a piece at a time and by several threads: the
// copy takes less time than the computation of the right contents.
#include "bench/perf/rank_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "bench/perf/gpu.h"
#include "core/error.h"

namespace tutti::perf {

namespace {

constexpr std::size_t kGuardBytes = 4096;  // before and after every buffer; keeps page alignment
constexpr std::size_t kPieceBytes = 1 << 20;

std::size_t allocation(const PerfOptions& options) {
  return options.max_bytes + 2 * kGuardBytes +
         static_cast<std::size_t>(options.unalign) * sizeof(std::uint64_t);
}

Buffer make_buffer(const PerfOptions& options, int device, const bench::NcclFunctions* nccl) {
  const std::size_t bytes = allocation(options);
  if (device < 0) return {bytes, options.local_register != 0};
  gpu::use(device);
  if (nccl == nullptr || options.local_register != 2)
    return {gpu::allocate(bytes), gpu::deallocate};
  if (nccl->mem_alloc == nullptr || nccl->mem_free == nullptr) {
    throw Error(ErrorCode::invalid_usage,
                fmt::format("--local_register 2: {} has no ncclMemAlloc", nccl->path));
  }
  void* memory = nullptr;
  nccl->check(nccl->mem_alloc(&memory, bytes), "ncclMemAlloc");
  return {static_cast<std::byte*>(memory), [nccl](std::byte* data) { nccl->mem_free(data); }};
}

// Calls piece(first, count, staging, stream) for all elements; staging holds the piece's bytes.
template <class Piece>
void for_each_piece(int device, int workers, std::size_t elements, std::size_t element_bytes,
                    const Piece& piece) {
  const std::size_t each = kPieceBytes / element_bytes;
  const std::size_t pieces = (elements + each - 1) / each;
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      gpu::use(device);
      const gpu::Stream stream;
      std::vector<std::byte> staging(std::min(elements, each) * element_bytes);
      for (std::size_t i = next++; i < pieces; i = next++) {
        piece(i * each, std::min(each, elements - i * each), staging.data(), stream);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  };
  if (pieces > 0) {
    std::vector<std::jthread> threads;
    const auto others = std::min(pieces, static_cast<std::size_t>(workers)) - 1;
    for (std::size_t i = 0; i < others; ++i) threads.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace

RankMemory::RankMemory(const PerfOptions& options, int device, const bench::NcclFunctions* nccl)
    : device_(device),
      workers_(
          std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / options.threads)),
      unalign_(static_cast<std::size_t>(options.unalign)),
      bytes_(allocation(options)),
      send_(make_buffer(options, device, nccl)),
      receive_(make_buffer(options, device, nccl)) {}

std::byte* RankMemory::start(const Buffer& buffer, DataType type) const {
  return buffer.data() + kGuardBytes + unalign_ * size_of(type);
}

void RankMemory::paint(const Data& data, const CallSetup& setup) const {
  const Expectation expected = expectation(setup, kGuardBytes / size_of(setup.type));
  paint(data, expected.send, send(setup.type) - kGuardBytes);
  paint(data, expected.receive_before, receive(setup.type) - kGuardBytes);
}

std::uint64_t RankMemory::count_wrong(const Data& data, const CallSetup& setup) const {
  const Expectation expected = expectation(setup, kGuardBytes / size_of(setup.type));
  return count_wrong(data, expected.send, send(setup.type) - kGuardBytes) +
         count_wrong(data, expected.receive_after, receive(setup.type) - kGuardBytes);
}

void RankMemory::paint(const Data& data, const Image& image, std::byte* at) const {
  if (device_ < 0) return perf::paint(data, image, at);
  const std::size_t size = size_of(data.recipe().type);
  for_each_piece(
      device_, workers_, image.elements, size,
      [&](std::size_t first, std::size_t count, std::byte* staging, const gpu::Stream& stream) {
        perf::paint(data, image, first, count, staging);
        stream.copy(at + first * size, staging, count * size);
      });
}

std::uint64_t RankMemory::count_wrong(const Data& data, const Image& image,
                                      const std::byte* at) const {
  if (device_ < 0) return perf::count_wrong(data, image, at);
  const std::size_t size = size_of(data.recipe().type);
  std::atomic<std::uint64_t> wrong{0};
  for_each_piece(
      device_, workers_, image.elements, size,
      [&](std::size_t first, std::size_t count, std::byte* staging, const gpu::Stream& stream) {
        stream.copy(staging, at + first * size, count * size);
        wrong += perf::count_wrong(data, image, first, count, staging);
      });
  return wrong;
}

}  // namespace tutti::perf
