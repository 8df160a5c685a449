// What travels on a TCP wire: frames of 32 bytes, each with as many bytes behind it as it says. A
// peer of the other byte order fails at the handshake's version already.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti {

/// A link from one rank to another, for those two.
struct LinkName {
  std::uint64_t group = 0;  // the communicator: RankGroup::id()
  std::uint64_t channel = 0;
  friend auto operator<=>(const LinkName&, const LinkName&) = default;
};

struct Frame {
  enum Kind : std::uint32_t {
    data = 1,    // a message of link `link`: its number and place; the payload follows
    credit = 2,  // of link `link`, which its receiver sends: number: consumed, at: freed
    open = 3,    // the sender's `link` is the one that follows (Opening)
    left = 4,    // the sender has left the communicator `number`, and sends nothing more there
    note = 5,    // for the communicator `number`: a Note (tag); its bytes follow
    bye = 6,     // nothing more will come at all; where that is no good end, why follows
    hello = 7,   // over the control stream: what the wire says of itself follows
    ready = 8,   // over the control stream: the hello has come, and the wire may send
  };
  std::uint32_t kind = 0;
  std::uint32_t link = 0;
  std::uint32_t tag = 0;
  std::uint32_t bytes = 0;  // that follow
  std::uint64_t number = 0;
  std::uint64_t at = 0;
};
static_assert(sizeof(Frame) == 32);

struct Opening {
  LinkName name;
  std::uint64_t slots = 0, slot_bytes = 0, most_full = 0;
};

/// The most that a note has.
inline constexpr std::size_t kMostNote = std::size_t{64} << 10;

}  // namespace tutti
