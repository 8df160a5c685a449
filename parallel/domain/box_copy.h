// Copies between a part of a block and packed memory, as a message has it.
#pragma once

#include <cstddef>
#include <vector>

#include "parallel/domain/blocks.h"

namespace tutti::parallel::domain {

/// `outer` blocks, one after the other, of `box` cells of `cell_bytes`; the last dimension is
/// innermost.
struct BlockMemory {
  std::size_t outer = 1;
  Box box;
  std::size_t cell_bytes = 1;
  std::size_t bytes_of(const Box& part) const {
    return outer * static_cast<std::size_t>(cells(part)) * cell_bytes;
  }
};

/// Where a part of a block lies: runs of bytes, at equal distances on each of some levels.
class BoxRuns {
 public:
  /// `part` lies in the block's box.
  BoxRuns(const BlockMemory& memory, const Box& part);

  /// Whether it is one run, which needs no packing.
  bool contiguous() const { return levels_.empty(); }
  /// The offset of the first byte.
  std::size_t offset() const { return offset_; }

  void pack(const std::byte* block, std::byte* packed) const;
  void unpack(const std::byte* packed, std::byte* block) const;
  void zero(std::byte* block) const;

 private:
  struct Level {
    std::size_t count, distance;  // bytes
  };
  /// Calls use(offset in the block, offset in packed memory) for each run.
  template <class Use>
  void each_run(const Use& use) const;
  /// The same, with the bytes of a run: use.operator()<kBytes>(...), 0 if they are run_.
  template <class Use>
  void each_sized_run(const Use& use) const;

  std::vector<Level> levels_;  // the outermost first
  std::size_t offset_ = 0, run_ = 0, bytes_ = 0;
};

}  // namespace tutti::parallel::domain
