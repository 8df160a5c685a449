// Numbering the chunks of a plan.
#include "collectives/verify/buffers.h"

#include <fmt/format.h>

#include <algorithm>

#include "collectives/verify/story.h"

namespace tutti::proof {
namespace {

constexpr std::uint64_t kMostLocations = std::uint64_t{1} << 28;  // 1 GiB of values

bool has_blocks_of_any_size(Collective c) {
  return c == Collective::all_gather_v || c == Collective::reduce_scatter_v ||
         c == Collective::all_to_all_v;
}

}  // namespace

Buffers::Buffers(const Plan& plan, bool in_place)
    : collective_(plan.header.collective),
      pieces_(plan.header.pieces),
      all_chunks_are_equal_(pieces_ == 1 && !has_blocks_of_any_size(collective_)) {
  const PlanHeader& h = plan.header;
  std::uint64_t next = 0;
  std::uint64_t stride = 1;
  ranks_.resize(plan.ranks.size());
  for (int r = 0; r < h.ranks; ++r) {
    // 64 bits throughout: a plan from a file may claim anything.
    const std::uint64_t in = std::uint64_t{in_blocks(h.collective, h.ranks, r, h.root)} * pieces_;
    const std::uint64_t out = std::uint64_t{out_blocks(h.collective, h.ranks, r, h.root)} * pieces_;
    const std::uint64_t tmp = plan.ranks[static_cast<std::size_t>(r)].tmp_chunks;
    std::uint64_t in_begin = 0;
    std::uint64_t out_begin = in;
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
    const std::uint64_t user = std::max(in_begin + in, out_begin + out);
    if (next + user + tmp > kMostLocations) {
      throw Refuted{fmt::format(
          "the plan has more than {} chunks in all, too many to follow each one", kMostLocations)};
    }
    stride = std::max(stride, in);
    Rank& rank = ranks_[static_cast<std::size_t>(r)];
    rank.in = static_cast<std::uint32_t>(next + in_begin);
    rank.out = static_cast<std::uint32_t>(next + out_begin);
    rank.tmp = static_cast<std::uint32_t>(next + user);
    rank.in_chunks = static_cast<std::uint32_t>(in);
    rank.out_chunks = static_cast<std::uint32_t>(out);
    rank.tmp_chunks = static_cast<std::uint32_t>(tmp);
    next += user + tmp;
  }
  if (stride * ranks_.size() > kMostLocations) {
    throw Refuted{"the plan has too many input chunks to follow each one"};
  }
  input_stride_ = static_cast<std::uint32_t>(stride);
  locations_ = static_cast<std::uint32_t>(next);
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
