// Which cells of other ranks a rank needs for an operation on a field, and which ranks send them:
// the halo of its block.
//
// An output cell of a convolution or pooling reads a few input cells, its stencil. It belongs to
// the rank that owns the middle of its stencil. A rank's padded block is its own block and all
// other cells that its output cells read: cells of other ranks, and cells beyond the edge.
//
//     .  .  .  .  .  .     Own cells 4-7 in both dimensions; kernel 3, padding 1.
//     .  b  b  b  b  .     Padded block: cells 3-8, with the halo (.).
//     .  b  i  i  b  .     Interior (i): the output cells that read own cells alone. A rank
//     .  b  i  i  b  .     computes them while the halo travels.
//     .  b  b  b  b  .     Border (b): the output cells that need the halo.
//     .  .  .  .  .  .
//
// The halo comes one dimension after the other. A rank's messages in the second dimension have the
// halo of the first one, so corners come by way of a neighbour. That takes 2 messages in each
// dimension, 2 d in all, where all neighbours at once would be 3^d - 1; the bytes are the same.
//
// This is arithmetic: it needs no communicator. Threads may share it.
#pragma once

#include <tutti/core/types.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "blocks.h"

namespace tutti::parallel::domain {

/// The cells of one dimension that an output cell reads: `kernel` cells, every `dilation`-th.
/// Output cells are `stride` apart; the first one begins `padding` cells before the field.
struct Stencil {
  std::int64_t kernel = 1, stride = 1, dilation = 1, padding = 0;
  /// The input cells that these output cells read, from the first to the last; none for none.
  Range reads(Range outputs) const {
    const std::int64_t begin = outputs.begin * stride - padding;
    return {begin, begin + (outputs.size() == 0 ? 0 : (outputs.size() - 1) * stride + span())};
  }
  std::int64_t span() const { return dilation * (kernel - 1) + 1; }
};

/// A rank has `outer` fields, one after the other, and `inner` elements in each cell: with the
/// channels first, outer is samples times channels, and inner is 1; with the channels last, outer
/// is the samples and inner the channels.
struct HaloShape {
  std::string name{};                   // for errors and the trace
  std::vector<Dimension> dimensions{};  // of the input
  std::vector<Stencil> stencils{};      // one for each dimension
  std::size_t outer = 1, inner = 1;
  DataType type = DataType::float32;
  /// Whether output cells read across corners. Stencils that are a cross, as that of a heat
  /// equation, do not: without corners all messages travel at once.
  bool corners = true;
};

/// A part of the halo of rank `to`.
struct HaloMessage {
  int from = 0, to = 0;
  std::size_t dimension = 0;  // along which it travels
  Box source, target;         // the same cells, as `from` and as `to` count them
};

class HaloLayout {
 public:
  /// Throws Error(invalid_argument), which names the dimension, as Blocks, for stencils that are
  /// not possible or leave no output, and for fields that no memory can have.
  HaloLayout(int ranks, const HaloShape& shape);

  const Blocks& input() const { return input_; }
  /// Its edges are those of the input. A rank may have no cells of it.
  const Blocks& output() const { return output_; }
  /// A rank's block of the input with its halo. The halo of the first rank of a periodic dimension
  /// begins before cell 0.
  Box padded(int rank) const;
  /// The part of the padded block that is in the field.
  Box in_field(int rank) const;
  /// The input cells that these output cells read. A convolution without padding makes exactly
  /// these output cells of them.
  Box reads(const Box& outputs) const;
  /// The output cells of a rank that read own cells, and cells beyond edges of zeros, alone.
  Box interior(int rank) const;
  /// The output cells of a rank that are not in interior().
  std::vector<Box> border(int rank) const;

  /// The messages to `rank`, by dimension, and from the lowest cells to the highest. Parts of an
  /// own block, at periodic edges, come from the rank itself. A halo that is wider than the
  /// neighbour's block comes from several ranks.
  std::vector<HaloMessage> to(int rank) const;
  /// The messages from `rank` to others, in the order in which each of these has them in to().
  std::vector<HaloMessage> from(int rank) const;

 private:
  Range padded(std::size_t d, int coordinate) const;
  Range in_field(std::size_t d, int coordinate) const;

  Blocks input_;
  std::vector<Stencil> stencils_;
  Blocks output_;
  bool corners_;
};

}  // namespace tutti::parallel::domain
