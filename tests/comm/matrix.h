// The collective matrix: every collective x type x operator x in and out of place x size, run on a
// communicator and compared bit by bit, guard zones and untouched buffers included. The same body
// for thread ranks and for process ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/collective.h"
#include "comm/communicator.h"
#include "core/types.h"

namespace tutti::test {

struct Matrix {
  std::vector<Collective> collectives;  // empty: all but barrier
  std::vector<DataType> types;          // empty: all
  std::vector<ReduceKind> kinds;        // empty: all
  std::vector<std::size_t> bytes;       // of a block; rounded to elements
  bool window_memory = false;           // tutti::allocate, else malloc
  std::size_t misalign = 0;             // elements that buffers are off their alignment
  std::optional<int> root;              // none: every rank in turn
  std::uint64_t every = 1;              // one case of so many
};

/// 0, 1, odd ones, and one element around every size at which something changes (inline payload,
/// slots, algorithm, tiles).
std::vector<std::size_t> boundary_sizes(const Options& options);

struct Tally {
  std::uint64_t calls = 0;
  std::uint64_t wrong = 0;
  std::string first;  // the first wrong case, in words
};

/// Collective over the ranks of `communicator`.
Tally run_matrix(Communicator& communicator, const Matrix& matrix);

}  // namespace tutti::test
