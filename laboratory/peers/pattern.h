// The numbers that the loop writes into the inputs and expects in the outputs. They differ by rank,
// position and iteration, and their sum is exact in every order. perf::Data has such numbers, but a
// hash for each element takes longer than the measured calls. So a pattern repeats a table of
// numbers, and each block of elements begins at another place of the table. Copies and comparisons
// of whole blocks are as fast as memory.
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
  /// Replaces a rank: the sum over all ranks.
  static constexpr int kSum = -1;

  /// `reduces`: the numbers can be added up; otherwise they are any bits, NaNs included.
  Pattern(DataType type, bool reduces, int ranks);

  /// Elements [position, position + count) of `rank`'s input in `iteration`.
  void write(int rank, std::uint64_t iteration, std::size_t position, std::size_t count,
             std::byte* out) const;
  /// The index in `found` of the first element that is wrong.
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
