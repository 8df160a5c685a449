// Numbering the chunks of a plan.
#include "collectives/verify/buffers.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/verify/story.h"

namespace tutti::proof {
namespace {

constexpr std::uint64_t kMostLocations = std::uint64_t{1} << 28;  // 1 GiB of values

}  // namespace

Buffers::Buffers(const PlanHeader& h, bool in_place)
    : collective_(h.collective),
      pieces_(h.pieces),
      in_place_(in_place),
      blocks_have_any_size_(is_v(collective_)),
      all_chunks_are_equal_(pieces_ == 1 && !blocks_have_any_size_),
      ranks_(static_cast<std::size_t>(h.ranks)) {
  std::uint64_t stride = 1;
  for (int r = 0; r < h.ranks; ++r) {
    // 64 bits throughout: a plan from a file may claim anything.
    const std::uint64_t in = std::uint64_t{in_blocks(h.collective, h.ranks, r, h.root)} * pieces_;
    const std::uint64_t out = std::uint64_t{out_blocks(h.collective, h.ranks, r, h.root)} * pieces_;
    std::uint64_t in_begin = 0;
    std::uint64_t out_begin = in_place ? in : 0;
    if (in_place) {
      // in's block b is out's block *o, so the two buffers differ by a shift.
      for (std::uint32_t b = 0; b * std::uint64_t{pieces_} < in; ++b) {
        if (const auto o = in_place_block(h.collective, h.ranks, r, h.root, b)) {
          in_begin = *o > b ? std::uint64_t{*o - b} * pieces_ : 0;
          out_begin = *o > b ? 0 : std::uint64_t{b - *o} * pieces_;
          break;
        }
      }
    }
    const std::uint32_t first = take(std::max(in_place ? in_begin + in : 0, out_begin + out));
    stride = std::max(stride, in);
    if (stride * ranks_.size() > kMostLocations) {
      throw Refuted{
          fmt::format("the ranks' inputs have more than {} chunks in all, too many to "
                      "follow each one",
                      kMostLocations)};
    }
    Rank& rank = ranks_[static_cast<std::size_t>(r)];
    rank.in = first + static_cast<std::uint32_t>(in_begin);
    rank.out = first + static_cast<std::uint32_t>(out_begin);
    rank.in_chunks = static_cast<std::uint32_t>(in);
    rank.out_chunks = static_cast<std::uint32_t>(out);
  }
  input_stride_ = static_cast<std::uint32_t>(stride);
  first_tmp_ = locations_;
}

void Buffers::add_tmp(int rank, std::uint32_t chunks) {
  Rank& r = ranks_[static_cast<std::size_t>(rank)];
  r.tmp = take(chunks);
  r.tmp_chunks = chunks;
}

/// The first of so many locations that were nobody's yet.
std::uint32_t Buffers::take(std::uint64_t chunks) {
  if (locations_ + chunks > kMostLocations) {
    throw Refuted{fmt::format(
        "the plan has more than {} chunks in all, too many to follow each one", kMostLocations)};
  }
  const std::uint32_t first = locations_;
  locations_ += static_cast<std::uint32_t>(chunks);
  return first;
}

std::uint32_t Buffers::size_class(int rank, Space space, std::uint32_t chunk) const {
  if (all_chunks_are_equal_) return 0;
  const std::uint32_t piece = chunk % pieces_;
  const std::uint32_t block = chunk / pieces_;
  const auto self = static_cast<std::uint32_t>(rank);
  const auto n = static_cast<std::uint32_t>(ranks_.size());
  switch (collective_) {
    case Collective::all_gather_v:  // blocks belong to the rank that brings them
      return (space == Space::in ? self : block) * pieces_ + piece;
    case Collective::reduce_scatter_v:  // blocks belong to the rank that gets them
      return (space == Space::out ? self : block) * pieces_ + piece;
    case Collective::all_to_all_v:  // source, destination
      return (space == Space::in ? self * n + block : block * n + self) * pieces_ + piece;
    default:
      return piece;
  }
}

}  // namespace tutti::proof
