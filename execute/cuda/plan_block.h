// A rank's plan bound to byte offsets, as one flat block of plain data without pointers: made on
// the host (device_plan.h), uploaded once for each (plan, counts, type), and walked by the kernel
// as it is.
//
//     PlanBlock | Lane... | Range... | Action... | Use... | End... | Move... | Operand...
//
// Everything in it is an index or an offset, so the same bytes work wherever they lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "execute/compiled_operand.h"
#include "execute/cuda/message_format.h"

namespace tutti::device {

inline constexpr std::uint32_t kMostEnds = 512;                 // links of one lane
inline constexpr std::uint32_t kMostOperands = 512;             // of one step
inline constexpr std::size_t kMostMove = std::size_t{1} << 30;  // bytes
inline constexpr std::size_t kPlanInShared = 10 << 10;          // of a plan that blocks keep whole
inline constexpr std::uint32_t kPlainSources = 8;               // of a plain move, at most

/// destinations <- combine(sources), as execute/program.h's Move.
struct DeviceMove {
  std::uint32_t bytes;
  std::uint32_t first_operand;
  std::uint16_t destinations;
  std::uint16_t sources;
  // Operands that a block looks up before this move, its own and those of the next ones; 0: it has
  // looked them up. They are targets from `first_target` on.
  std::uint16_t looked_up;
  std::uint16_t first_target;
  std::uint32_t plain;  // 1: all words of 8 bytes, if buffers begin at multiples of 8; few sources
};

struct DeviceOperand {
  std::uint64_t offset;  // CompiledOperand's; send, receive: in the slot, flags included
  std::int32_t rank;     // peer_*: the owner; send, receive: index of the action's Use
  CompiledOperand::Where where;
  std::uint8_t scaled;  // of a source: if the reduction scales its inputs
  std::uint16_t move;   // of those that are looked up together
};

/// A message: the `ordinal`-th of its tile at one end of a connection.
struct Use {
  std::uint16_t end;          // index within the lane
  std::uint16_t second_step;  // 1: of an action's second step
  std::uint32_t ordinal;
};

/// The end of a connection that a lane sends to or receives from.
struct End {
  std::uint32_t peer;
  std::uint32_t channel;   // the plan's
  std::uint32_t per_tile;  // messages
  std::uint32_t sends;     // else it receives
  std::uint32_t counted;   // messages that are not of the tiles (device_messages.h)
};

struct DeviceAction {
  std::uint32_t first_use;  // receives, then sends
  std::uint32_t receives, sends;
  std::uint32_t first_move, moves;
  std::uint32_t check;      // what the headers of its messages add to the operation's tag
  std::uint32_t bytes_out;  // of each message that it sends
  Protocol protocol;        // of its messages
  std::uint16_t signals, completes;
  std::uint32_t steps;  // of the plan, that it does at once; only the first has an action
};

/// Tiles with the same actions: they differ in nothing but where they lie.
struct Range {
  std::uint32_t first_tile, end_tile;
  std::uint32_t first_action;
  std::uint32_t tile_stride;  // bytes from a tile to the next, in every block of in and out
};

struct DeviceLane {
  std::uint32_t actions;  // of each tile
  std::uint32_t first_range, ranges;
  std::uint32_t first_end, ends;
};

struct PlanBlock {
  std::uint64_t tmp_stride;  // bytes of tmp of each copy
  double reciprocal;         // of the divisor
  std::uint32_t lanes, copies;
  std::uint32_t windows;    // 1: signals carry addresses
  std::uint32_t messages;   // 1: sends and receives, no operation of all ranks
  std::uint32_t reduction;  // 1: of a collective that reduces
  std::uint32_t divisor;    // ranks
  std::uint32_t plan_channels;
  std::uint32_t shares_tiles;  // 1: all copies have all tiles, and share out the data of each
  std::uint32_t bytes;         // of all
  // Byte offsets of the arrays.
  std::uint32_t lane, range, action, use, end, move, operand;
  std::uint32_t reserved[3];
};
static_assert(sizeof(PlanBlock) % 16 == 0);

}  // namespace tutti::device
