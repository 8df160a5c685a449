// Blocks: a field of cells in one or more dimensions (an image, a volume, the grid of an equation),
// cut into one block for each rank of an axis. Each cell belongs to one rank.
//
//     Blocks blocks(6, {{"y", 7, 2}, {"x", 9, 3}});      // rows of blocks: 4, 3; columns: 3, 3, 3
//
//              x 0-2     3-5      6-8
//     y 0-3   rank 0 | rank 1 | rank 2     the last dimension is innermost, as in a mesh:
//       4-6   rank 3 | rank 4 | rank 5     mesh.axis({"y", "x"}) has these ranks
//
// This is arithmetic: it needs no communicator. Threads may share it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "../mesh.h"

namespace tutti::parallel::domain {

/// Cells begin ... end - 1 of a dimension. Cells before 0 and behind the last one are those beyond
/// the edge.
struct Range {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end > begin ? end - begin : 0; }
  bool operator==(const Range&) const = default;
};
Range intersection(Range a, Range b);

/// A range in each dimension.
using Box = std::vector<Range>;
std::int64_t cells(const Box& box);
/// `outer` without `inner`, which lies in it: boxes that have no cell in common, two at most in
/// each dimension.
std::vector<Box> without(const Box& outer, const Box& inner);

/// What is beyond the edge of the field.
enum class Edge : unsigned char {
  zero,      // cells that are 0
  periodic,  // the cells of the opposite edge
};

struct Dimension {
  std::string name;
  std::int64_t cells = 0;
  int ranks = 1;  // -1 (in one dimension at most): as many as there are ranks for
  Edge edge = Edge::zero;
  std::vector<std::int64_t> blocks{};  // the cells of each rank; none: as equal as can be
};

class Blocks {
 public:
  /// Blocks that are as equal as can be: the first ones have one cell more. Throws
  /// Error(invalid_argument), which names the dimension, if the ranks of the dimensions do not
  /// multiply up to `ranks`, if `blocks` has not one entry for each rank of the dimension or does
  /// not add up to its cells, or if there are fewer cells than ranks and `blocks` does not say
  /// which ranks have none.
  Blocks(int ranks, std::vector<Dimension> dimensions);

  /// With the numbers of ranks and the blocks filled in.
  std::span<const Dimension> dimensions() const { return dimensions_; }
  /// Ranks and their coordinates.
  const MeshShape& grid() const { return grid_; }

  /// The cells of the ranks with this coordinate in dimension d.
  Range range(std::size_t d, int coordinate) const;
  Box box(int rank) const;

 private:
  std::vector<Dimension> dimensions_;
  MeshShape grid_;
};

}  // namespace tutti::parallel::domain
