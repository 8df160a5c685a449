// See pattern.h.
#include "laboratory/peers/pattern.h"

#include <algorithm>
#include <cstring>

#include "bench/perf/data.h"

namespace tutti::peers {
namespace {

constexpr std::size_t kBlock = 1024;  // elements
// A prime: blocks that are any power of two of blocks apart, as chunks tend to be, start at
// different places of the table.
constexpr std::size_t kPeriod = 1021;
constexpr std::size_t kBlockStep = 617, kIterationStep = 211;  // of the starting place

std::size_t starting_place(std::size_t block, std::uint64_t iteration) {
  return (block % kPeriod * kBlockStep + iteration % kPeriod * kIterationStep) % kPeriod;
}

}  // namespace

Pattern::Pattern(DataType type, bool reduces, int ranks) : element_(size_of(type)) {
  const perf::Data data({type, reduces ? std::optional(ReduceKind::sum) : std::nullopt, ranks, 0});
  for (int rank = kSum; rank < ranks; ++rank) {
    // A whole block can be read from any starting place.
    auto& table = tables_.emplace_back((kPeriod + kBlock) * element_);
    for (std::size_t at = 0; at < kPeriod + kBlock; at += kPeriod) {
      const std::size_t count = std::min(kPeriod, kPeriod + kBlock - at);
      std::byte* const to = table.data() + at * element_;
      rank == kSum ? data.reduction(0, count, to) : data.input(rank, 0, count, to);
    }
  }
}

/// Calls visit(first, count, bytes): those elements, counted from `position`, are these.
template <class Visit>
void Pattern::for_each_block(int rank, std::uint64_t iteration, std::size_t position,
                             std::size_t count, const Visit& visit) const {
  const std::byte* const table = tables_[static_cast<std::size_t>(rank - kSum)].data();
  for (std::size_t done = 0; done < count;) {
    const std::size_t in_block = (position + done) % kBlock;
    const std::size_t part = std::min(kBlock - in_block, count - done);
    const std::size_t place = starting_place((position + done) / kBlock, iteration) + in_block;
    if (!visit(done, part, table + place * element_)) return;
    done += part;
  }
}

void Pattern::write(int rank, std::uint64_t iteration, std::size_t position, std::size_t count,
                    std::byte* out) const {
  for_each_block(rank, iteration, position, count,
                 [&](std::size_t first, std::size_t part, const std::byte* bytes) {
                   std::memcpy(out + first * element_, bytes, part * element_);
                   return true;
                 });
}

std::optional<std::size_t> Pattern::find_wrong(int rank, std::uint64_t iteration,
                                               std::size_t position, std::size_t count,
                                               const std::byte* found) const {
  std::optional<std::size_t> wrong;
  for_each_block(rank, iteration, position, count,
                 [&](std::size_t first, std::size_t part, const std::byte* bytes) {
                   const std::byte* const there = found + first * element_;
                   if (std::memcmp(there, bytes, part * element_) == 0) return true;
                   std::size_t i = 0;
                   while (std::memcmp(there + i * element_, bytes + i * element_, element_) == 0) {
                     ++i;
                   }
                   wrong = first + i;
                   return false;
                 });
  return wrong;
}

}  // namespace tutti::peers
