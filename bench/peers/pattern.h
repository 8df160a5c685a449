// What the loop writes into the inputs and expects in the outputs: numbers that differ by rank,
// position and iteration, and whose sum is exact in every order. perf::Data has such numbers, but a
// hash for each element takes longer than the calls that are measured. So a pattern repeats a table
// of them, each block of elements from another place in it on: copies and comparisons of whole
// blocks, as fast as memory is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/types.h"

namespace tutti::peers {

class Pattern {
 public:
  /// Stands in for a rank: the sum of what all ranks have.
  static constexpr int kSum = -1;

  /// `reduces`: the numbers can be added up; otherwise they are any bits, NaNs included.
  Pattern(DataType type, bool reduces, int ranks);

  /// Elements [position, position + count) of what `rank` has in `iteration`.
  void write(int rank, std::uint64_t iteration, std::size_t position, std::size_t count,
             std::byte* out) const;
  /// The first of these elements that `found` does not have, as an index into `found`.
  std::optional<std::size_t> find_wrong(int rank, std::uint64_t iteration, std::size_t position,
                                        std::size_t count, const std::byte* found) const;

 private:
  template <class Visit>
  void for_each_block(int rank, std::uint64_t iteration, std::size_t position, std::size_t count,
                      const Visit& visit) const;

  std::size_t element_;                         // bytes
  std::vector<std::vector<std::byte>> tables_;  // of the sum, then of every rank
};

}  // namespace tutti::peers
