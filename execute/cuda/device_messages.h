// Sends and receives of one rank, all that are in flight together, as a block of data that the
// kernel walks like a plan (device_plan.h). Each (peer, direction) has lanes of its own, which take
// its messages in order. So a message waits only for those before it on its way.
//
//     lane -> for each of its messages: a range of whole tiles for each channel that the lane
//             serves, and the last tile
//
// Both ends find the same connections and numbers from the message alone (protocol.h), however the
// calls of each were grouped, and whatever number of blocks each can give.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "execute/cuda/segment.h"

namespace tutti::device {

struct DeviceMessage {
  std::uint32_t peer = 0;  // may be the rank itself, with the other half among the same messages
  bool sends = false;      // else it receives
  std::uint32_t tag = 0;   // in which both ends must agree
  std::byte* buffer = nullptr;
  std::size_t bytes = 0;  // more than 0
};

/// A message as it is built: its place is an offset, so that a block serves all calls with buffers
/// that lie alike.
struct PlacedMessage {
  std::uint32_t peer = 0;
  bool sends = false;
  bool whole_lines = false;  // as cut_message() takes it
  std::uint32_t tag = 0;
  std::uint64_t offset = 0;  // from the base of what is sent, or received
  std::size_t bytes = 0;
};

/// `most_blocks`: that this rank may have; each lane is one. Throws Error(invalid_argument) where
/// there are more (peer, direction)s than that, or no message channels.
std::vector<std::byte> build_message_block(std::span<const PlacedMessage> messages,
                                           const SegmentShape& shape, std::uint32_t most_blocks);

}  // namespace tutti::device
