// How a message's bytes lie in its slot, and how the receiver learns that they are there.
//
//     Simple  as they are; the header is published after them, with release. Full bandwidth, but a
//             fence and two trips: flag, then data.
//     LL      8-byte words of 4 bytes of data and a 4-byte flag, the message's number: one trip, no
//             fence, half the bandwidth. Any link that keeps 8-byte stores whole.
//     LL128   128-byte lines of 120 bytes of data and an 8-byte flag, in pairs (combine_links.h):
//             one trip at 94% of the bandwidth, where the link keeps the 128-byte store of a warp
//             whole (the same GPU, NVLink; not PCIe).
//
// LL and LL128 messages order nothing but their own data. So they carry data only where nothing
// else depends on a message's order: plans of one lane, without windows. Signals are always
// ordered.
#pragma once

#include <cstdint>

#include "execute/cuda/portable.h"

namespace tutti::device {

enum class Protocol : std::uint32_t { simple, ll, ll128 };

/// Bytes of data that lie together in a message: a chunk begins at a multiple of them.
TUTTI_HD std::uint32_t message_unit(Protocol p) {
  return p == Protocol::simple ? 16 : p == Protocol::ll ? 8 : 240;
}
/// Bytes of the slot that message_unit() bytes of data take.
TUTTI_HD std::uint32_t wire_unit(Protocol p) {
  return p == Protocol::simple ? 16 : p == Protocol::ll ? 16 : 256;
}

}  // namespace tutti::device
