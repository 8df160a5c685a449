// A plan with its chunks turned into bytes: what is the same for all calls with the same counts,
// and for every executor. Made once, looked up from then on, so that a short call does little more
// than move its data.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectives/layout.h"
#include "collectives/plan.h"
#include "core/types.h"
#include "execute/compiled_operand.h"
#include "transport/rank_group.h"

namespace tutti {

/// Where the blocks of a buffer lie.
struct BlockTable {
  std::byte* base = nullptr;
  std::size_t count = 0;                 // elements of every block, unless `counts` says otherwise
  std::span<const std::size_t> counts;   // v-variants
  std::span<const std::size_t> offsets;  // in elements; with counts

  std::size_t elements(std::uint32_t block) const { return counts.empty() ? count : counts[block]; }
  std::size_t offset(std::uint32_t block) const {
    return offsets.empty() ? block * count : offsets[block];
  }
  /// Elements from the base to the end of the last of `blocks`.
  std::size_t extent(std::uint32_t blocks) const {
    std::size_t end = 0;
    for (std::uint32_t b = 0; b < blocks; ++b) end = std::max(end, offset(b) + elements(b));
    return end;
  }
};

/// A call and its plan, as the executors of the host and of GPUs both take them.
struct BoundCall {
  const RankPlan* plan = nullptr;
  DataType type = DataType::uint8;
  ReduceOp op;
  BlockTable in, out;
  bool windows = false;        // the plan addresses other ranks' memory (the same on all ranks)
  bool tiles_by_lane = false;  // each lane repeats for its own largest block (all_to_all_v)
  bool canonical = false;      // a reduction has the canonical order (the same on all ranks)
};

/// The offsets of blocks that lie one behind the other.
std::vector<std::size_t> packed_offsets(std::span<const std::size_t> counts);

/// destinations <- combine(sources), for bytes that lie together in every operand.
struct Move {
  const CompiledOperand* operands = nullptr;  // destinations, links first; then sources
  std::uint16_t destinations = 0;
  std::uint16_t sources = 0;
  std::size_t elements = 0;
  bool remote = false;            // some operand is another rank's
  bool scaled = false;            // some source is a raw input of a reduction
  Format format = Format::plain;  // of those operands that are not plain,
  std::uint16_t not_plain = 0;    // which of the destinations are the first
};

// The pointers are the host executor's; null where the program was compiled without a group.
struct ReceiveLink {
  Receiver* link;
  Doorbell* doorbell;  // of the peer
  std::int32_t rank;
  std::uint8_t channel;
};
struct SendLink {
  Sender* link;
  Doorbell* doorbell;
  std::int32_t rank;
  std::uint8_t channel;
};

/// A step. Its spans lie in the program's vectors.
struct Action {
  std::span<const ReceiveLink> receives;
  std::span<const SendLink> sends;
  std::span<const Move> moves;
  std::uint32_t bytes_out = 0, bytes_in = 0;  // of each message that it sends, or takes
  bool signals = false;  // no data: its messages carry addresses, where windows are used
  bool completes = false;
};

/// One tile of a rank's plan. Can be moved, not copied: actions point into it.
struct TileProgram {
  std::vector<std::span<const Action>> lanes;
  std::vector<Action> actions;
  std::vector<Move> moves;
  std::vector<CompiledOperand> operands;
  std::vector<ReceiveLink> receives;
  std::vector<SendLink> sends;

  TileProgram() = default;
  TileProgram(TileProgram&&) = default;
  TileProgram& operator=(TileProgram&&) = default;
};

/// What a lane of all_to_all_v runs: the lane with its number in `plan`, cut for its own block.
struct LaneProgram {
  const RankPlan* plan = nullptr;
  Tiling tiling;
};

/// A whole plan: whole tiles share a program, the last one may differ.
struct Programs {
  TileProgram whole, last;
  std::vector<LaneProgram> by_lane;  // none: all ranks' blocks are equal
};

/// Everything but the plan that a program depends on.
struct ProgramShape {
  DataType type = DataType::uint8;
  BlockTable in, out;  // the bases do not matter
  Tiling tiling;
  std::size_t message_unit = 1;  // a chunk begins at a multiple of these bytes in its message
};

/// Bytes of a tile's tmp.
std::size_t tmp_bytes(const RankPlan& plan, const Tiling& tiling, DataType type);

/// Tile `tile` of `plan`, with offsets as if it were tile 0 (so that all whole tiles share it); of
/// lane `only`, or of all. With the links of `group`, unless it is null.
TileProgram compile(const RankPlan& plan, const ProgramShape& shape, std::size_t tile,
                    RankGroup* group, std::optional<std::size_t> only = {});
/// All tiles. `shape` has even blocks.
Programs compile(const RankPlan& plan, const ProgramShape& shape, RankGroup& group);
/// All tiles, where each lane moves blocks of one size (all_to_all_v).
Programs compile(const ProgramShape& shape, std::vector<LaneProgram> by_lane, RankGroup& group);
/// Elements of the largest block that lane `lane` moves.
std::size_t block_of(const RankPlan& plan, const ProgramShape& shape, std::size_t lane);
/// Tiles of lane `lane` where every lane repeats for its own largest block (all_to_all_v).
std::size_t tiles_of(const RankPlan& plan, const ProgramShape& shape, std::size_t lane);

}  // namespace tutti
