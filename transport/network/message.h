// What two ranks of different hosts say to each other about their links: the header that travels
// with each message, and short control messages. All are plain bytes of one layout, whatever
// network carries them. A peer of the other byte order fails at the handshake's version already.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti {

/// A link from one rank to another, for those two.
struct LinkName {
  std::uint64_t communicator = 0;  // the communicator: RankGroup::id()
  std::uint64_t channel = 0;
  friend auto operator<=>(const LinkName&, const LinkName&) = default;
};

/// What a link's receiver has finished with.
struct Credit {
  std::uint32_t link = 0;  // the number that the link's sender has given to it; 0: no credit
  std::uint32_t unused = 0;
  std::uint64_t consumed = 0;  // messages
  std::uint64_t freed = 0;     // where their data ended, as Cursor::passed()
};

/// Travels with each message of a link, and (kind, bytes) with each control message.
struct MessageHeader {
  enum Kind : std::uint32_t {
    message = 1,
    posted = 2,  // the sender has put the message where the receiver had posted a receive
    control = 3,
    placed = 4,  // the sender has put the message into memory that the receiver exposes
  };
  std::uint32_t kind = message;
  std::uint32_t link = 0;
  std::uint32_t tag = 0;
  std::uint32_t bytes = 0;   // of the payload
  std::uint64_t number = 0;  // of the message in its link, from 1
  std::uint64_t at = 0;      // of a payload longer than kInlineBytes: its place in the ring's data
  Credit credit;             // goes along
  // Numbers all that this end sends, messages and control messages, unless the network keeps their
  // order anyhow.
  std::uint32_t sequence = 0;
  // Of a run (Endpoint::Abilities::runs_from): how many more messages of the link lie behind the
  // first, with the same tag, and the bytes of the last one. The others are as long as the first.
  std::uint32_t more = 0;
  std::uint32_t last_bytes = 0;
  // Over TCP: on so many stripes a part of the payload travels (tcp/tcp_endpoint.h).
  std::uint32_t stripes = 0;

  /// The payload's bytes, of all messages of a run.
  std::uint64_t total_bytes() const {
    return more == 0 ? bytes : std::uint64_t{more} * bytes + last_bytes;
  }
  /// The header of message `i` of a run.
  MessageHeader in_run(std::uint32_t i) const {
    MessageHeader h = *this;
    h.number += i;
    h.at += std::uint64_t{i} * bytes;
    if (i > 0 && i == more) h.bytes = last_bytes;
    h.more = 0;
    return h;
  }
};
static_assert(sizeof(MessageHeader) == 72);

/// Where the sender of an endpoint with remote writes finds memory of the receiver.
struct RemotePlace {
  std::uint64_t address = 0;
  std::uint32_t key = 0;
  std::uint32_t unused = 0;
};

/// A receive that was posted ahead: where message `number` is to be written, instead of its slot.
struct PostedPlace {
  std::uint64_t number = 0;  // 0: nowhere
  RemotePlace place;
  std::uint32_t tag = 0, bytes = 0;
};

/// Memory that a rank exposes: the peer may write there at any time, until it is hidden again.
struct ExposedPlace {
  std::uint64_t key = 0;  // by which both know it
  std::uint64_t bytes = 0;
  RemotePlace place;
};

/// What the two ends of a connection say of their links.
struct Control {
  enum Kind : std::uint32_t {
    open = 1,       // the sender's link `link` has this name and shape
    opened = 2,     // the receiver knows link `link`; its ring lies at `place`
    gone = 3,       // the receiver has left the communicator of link `link`
    credits = 4,    // up to kCredits
    post = 5,       // the receiver of link `link` wants messages at these places
    withdraw = 6,   // the receiver of link `link` wants none of them there any more
    withdrawn = 7,  // the sender of link `link` writes to none of them any more
    left = 8,       // the sender has left `communicator`, and sends nothing more there
    bye = 9,        // nothing more will come at all
    all_came = 10,  // the answer to a bye: all that was sent before it has come
    expose = 11,    // the peer may write to `exposed`; no bytes: it never may
    hide = 12,      // it may not any more
    hidden = 13,    // the answer: all that it wrote there has come
  };
  struct Opening {
    LinkName name;
    std::uint64_t slots = 0, slot_bytes = 0, most_full = 0;
  };
  static constexpr std::size_t kCredits = 4, kPosts = 3;

  Control() : all{} {}

  std::uint32_t kind = 0;
  std::uint32_t link = 0;  // as its sender has numbered it
  std::uint64_t communicator =
      0;  // left; expose: ends with the links of this communicator, if not 0
  union {
    Opening opening;                        // open
    RemotePlace place;                      // opened
    std::array<Credit, kCredits> credit;    // credits; those without a link are none
    std::array<PostedPlace, kPosts> posts;  // post; those without a number are none
    ExposedPlace exposed;                   // expose; hide and hidden: its key
    std::array<std::uint64_t, 12> all;
  };
};
static_assert(sizeof(Control) == 112);

}  // namespace tutti
