// The locations of the chunks of all ranks, for the verifier: every chunk of every out and tmp has
// one number, its location. In place, the chunks of `in` and `out` that are the same memory have
// the same location, so that nothing else in the verifier needs to know about in-place calls. Out
// of place no step writes `in`, so the verifier need not follow its contents: it has no locations.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/plan.h"

namespace tutti::proof {

class Buffers {
 public:
  /// All ranks' `in` and `out`. Throws Refuted if there are too many chunks to follow each one. The
  /// header is valid.
  Buffers(const PlanHeader& header, bool in_place);
  /// Adds rank `rank`'s tmp, once; do not ask about it before.
  void add_tmp(int rank, std::uint32_t chunks);

  bool knows_tmp(int rank) const {
    return ranks_[static_cast<std::size_t>(rank)].tmp_chunks != kUnknown;
  }
  /// Chunks of rank `rank`'s buffer.
  std::uint32_t chunks(int rank, Space space) const {
    const Rank& r = ranks_[static_cast<std::size_t>(rank)];
    return space == Space::in ? r.in_chunks : space == Space::out ? r.out_chunks : r.tmp_chunks;
  }
  bool has_locations(Space space) const { return space != Space::in || in_place_; }
  std::uint32_t location(int rank, Space space, std::uint32_t chunk) const {
    const Rank& r = ranks_[static_cast<std::size_t>(rank)];
    return chunk + (space == Space::in ? r.in : space == Space::out ? r.out : r.tmp);
  }
  std::uint32_t locations() const { return locations_; }
  bool is_tmp(std::uint32_t location) const { return location >= first_tmp_; }
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(ranks_.size()); }

  /// A number for chunk `chunk` of the input of rank `rank`.
  std::uint32_t input(int rank, std::uint32_t chunk) const {
    return static_cast<std::uint32_t>(rank) * input_stride_ + chunk;
  }
  std::uint32_t inputs() const { return input_stride_ * static_cast<std::uint32_t>(ranks_.size()); }
  int input_rank(std::uint32_t input) const { return static_cast<int>(input / input_stride_); }
  std::uint32_t input_chunk(std::uint32_t input) const { return input % input_stride_; }

  /// Chunks of one class have the same number of bytes in every call. If all blocks are equal, the
  /// class is the piece; if every block has its own size, it is the block's identity and the piece.
  std::uint32_t size_class(int rank, Space space, std::uint32_t chunk) const;
  std::uint32_t input_size_class(std::uint32_t input) const {
    return size_class(input_rank(input), Space::in, input_chunk(input));
  }
  bool all_chunks_are_equal() const { return all_chunks_are_equal_; }
  bool blocks_have_any_size() const { return blocks_have_any_size_; }

 private:
  static constexpr std::uint32_t kUnknown = 0xffffffff;
  struct Rank {
    std::uint32_t in = 0, out = 0, tmp = 0;  // locations of chunk 0
    std::uint32_t in_chunks = 0, out_chunks = 0, tmp_chunks = kUnknown;
  };
  std::uint32_t take(std::uint64_t chunks);

  Collective collective_;
  std::uint32_t pieces_;
  bool in_place_;
  bool blocks_have_any_size_;
  bool all_chunks_are_equal_;
  std::vector<Rank> ranks_;
  std::uint32_t input_stride_ = 1;  // chunks of the largest `in`
  std::uint32_t locations_ = 0;
  std::uint32_t first_tmp_ = 0;
};

}  // namespace tutti::proof
