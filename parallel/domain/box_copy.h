// Copies between parts of a block and packed memory, as a message has it.
//
// Columns cost time: each number of a column is in another cache line, and in a large block in
// another page. The two columns that a rank sends, and the two that it receives, lie at the ends of
// the same rows, so near each other in memory. Parts of equal form are copied together, a row of
// each in turn, which takes half of the time (docs/experiments.md#halos).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "parallel/device.h"
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

  /// Whether the part is one run, which needs no packing.
  bool contiguous() const { return levels_.empty(); }
  /// The offset of the first byte.
  std::size_t offset() const { return offset_; }

  /// The bytes of a run.
  std::size_t run() const { return run_; }

  // Blocks and packed memory are the device's. On a GPU it is work on current(): a copy for all
  // runs of the innermost level.
  /// `zeros`: on a GPU, a run of them.
  void zero(Device& device, std::byte* block, const std::byte* zeros) const;

  /// A part and its packed memory.
  struct Copy {
    const BoxRuns* runs;
    std::byte* packed;
  };
  static void pack(Device& device, std::span<const Copy> copies, const std::byte* block);
  static void unpack(Device& device, std::span<const Copy> copies, std::byte* block);

 private:
  struct Level {
    std::size_t count, distance;  // bytes
    bool operator==(const Level&) const = default;
  };
  bool same_form(const BoxRuns& other) const {
    return run_ == other.run_ && levels_ == other.levels_;
  }
  /// Calls move.operator()<kBytes>(offset in the block, packed memory, bytes) for all runs; kBytes
  /// is 0 where the compiler does not know it.
  template <class Move>
  static void move_all(std::span<const Copy> copies, const Move& move);
  /// Calls use(offset in the block, offset in packed memory) for the first run of each innermost
  /// level, whose others follow at distances.
  template <class Use>
  void each_level(const Use& use) const;
  /// Calls `use` for each run.
  template <class Use>
  void each_run(const Use& use) const;
  /// Calls `use` with the bytes of a run: use.operator()<kBytes>(...), 0 if they are run_.
  template <class Use>
  void each_sized_run(const Use& use) const;

  /// The innermost.
  Level inner() const { return levels_.empty() ? Level{1, run_} : levels_.back(); }

  std::vector<Level> levels_;  // the outermost first
  std::size_t offset_ = 0, run_ = 0, bytes_ = 0;
};

}  // namespace tutti::parallel::domain
