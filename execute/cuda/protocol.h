// Which protocol (message_format.h) a call takes, and in how many blocks and tiles it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "collectives/layout.h"
#include "collectives/plan.h"
#include "execute/cuda/message_format.h"
#include "execute/cuda/segment.h"

namespace tutti::device {

/// A set of protocols.
struct Protocols {
  bool simple = true, ll = true, ll128 = true;

  bool has(Protocol p) const {
    return p == Protocol::simple ? simple : p == Protocol::ll ? ll : ll128;
  }
};
/// "ll,simple", or "^ll128": all but that; in any case of letters; "": all. Throws
/// Error(invalid_argument) for another name, or where none is left.
Protocols protocols_from(std::string_view text);

/// What the choice depends on: the same on all ranks, and so is the choice.
struct Traits {
  std::size_t bytes = 0;  // of the largest buffer
  std::size_t block = 0;  // elements of the largest block
  std::size_t element_bytes = 1;
  bool windows = false;        // the plan addresses other ranks' memory
  bool link_data = true;       // its links carry data, not only signals
  bool tiles_by_lane = false;  // all_to_all_v: only two ends know a block's size
  bool whole_lines = true;     // every link keeps 128-byte stores whole
  bool sums = true;            // it does not reduce, or sums, with factors at most
  Protocols allowed;           // as far as the plan and the links leave a choice
  std::uint32_t plan_channels = 1;
  std::uint32_t tmp_chunks = 0;  // as DataPath's (collectives/cut.h), as is the next
  bool from_inputs = false;
  std::uint32_t most_blocks = 1;  // blocks that a rank may have
};

/// How a call runs on the device.
struct Choice {
  Protocol protocol = Protocol::simple;
  std::uint32_t copies = 1;   // every lane runs in so many blocks, which share out the tiles,
  bool shares_tiles = false;  // or the data of each tile
  Tiling tiling;
};

/// Throws Error(invalid_argument) where the plan does not fit the segment or the device.
Choice choose(const PlanHeader& plan, const Traits& traits, const SegmentShape& shape);
/// The choice where the protocol is given (for tests).
Choice choose(const PlanHeader& plan, const Traits& traits, const SegmentShape& shape,
              Protocol protocol, std::uint32_t copies);

/// How a message of send and recv is cut into tiles, each a message of a connection: tile t goes by
/// message channel t % message_channels. It depends on nothing but the message, so that both ends
/// agree whatever else is in their groups. `whole_lines`: of the link between the two.
struct MessageCut {
  Protocol protocol = Protocol::simple;
  std::size_t tile = 0;  // bytes
  std::uint32_t tiles = 0;
};
MessageCut cut_message(std::size_t bytes, bool whole_lines, const SegmentShape& shape);

/// Whether a plan's data may travel by LL and LL128.
bool may_be_flagged(const PlanHeader& plan, const Traits& traits);

}  // namespace tutti::device
