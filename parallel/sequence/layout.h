// Which positions of the sequence a rank has, and which queries meet which keys when.
//
// The ranks of an axis divide the sequence. In contiguous order rank r has the r-th part. With a
// causal mask the last rank then has most of the work. In zigzag order the sequence is cut into two
// chunks for each rank, and rank r of P has chunks r and 2P-1-r, so all have the same work (of 4
// ranks, rank 1 has the chunks marked x):
//
//     chunk   0 1 2 3 4 5 6 7
//     rank 1    x         x
#pragma once

#include <cstddef>
#include <vector>

namespace tutti::parallel::sequence {

enum class SequenceOrder : unsigned char { contiguous, zigzag };

struct Range {
  std::size_t first = 0, count = 0;
  std::size_t end() const { return first + count; }
  bool operator==(const Range&) const = default;
};

/// One call of the kernel: queries of this rank's block, and keys of the block of another one (or
/// of all, if they are gathered), as rows of these blocks.
struct Part {
  Range queries, keys;
  bool causal = false;
  bool operator==(const Part&) const = default;
};

struct SequenceLayout {
  SequenceOrder order = SequenceOrder::contiguous;
  bool causal = false;
  std::size_t rows = 0;  // of a rank's block; even in zigzag order
  int rank = 0, ranks = 1;

  std::size_t half() const { return rows / 2; }
  /// The place in the sequence of a row of the block of `of`.
  std::size_t position(int of, std::size_t row) const;

  /// The work of this rank with the keys of `owner`: at most one part.
  std::vector<Part> parts(int owner) const;
  /// The parts with the rank's own keys, in two halves: `early` while the first keys of others
  /// come, `late` while the gradients of its own keys come home.
  std::vector<Part> early() const;
  std::vector<Part> late() const;
  /// The work with the keys of all ranks, gathered in the order of the sequence.
  std::vector<Part> gathered() const;
};

}  // namespace tutti::parallel::sequence
