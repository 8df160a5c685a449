// The memory of one rank that ranks on other GPUs (or other blocks) write into or read: counters,
// credits, and the connections that lead to this rank. All ranks lay it out alike, so a rank has to
// know only the base address of each other one.
//
//     State | progress | numbers sent, received | credit lines | peers' buffers | windows |
//     connections: headers, lengths, LL slots, LL128 slots, Simple slots |
//     signals: headers, lengths, payloads
//
// A connection is the bounded FIFO of transport/host/connection.h, one for each (sender, receiver,
// channel), with its parts where they are polled: messages in the receiver's segment, credit in the
// sender's. All protocols share the numbers of a connection's messages, and each has slots of its
// own, because a flag must never be anybody's data. Nothing is ever reset.
#pragma once

#include <cstddef>
#include <cstdint>

#include "execute/cuda/portable.h"
#include "execute/windows.h"

namespace tutti::device {

/// Lines of different writers are kept this far apart; LL128's unit as well.
inline constexpr std::size_t kLine = 128;
inline constexpr std::uint32_t kMostBlocks = 256;  // of one rank in one operation
inline constexpr std::uint32_t kMostSlots = 16;
inline constexpr std::uint32_t kMostWindows = 1024;  // of one rank, known to another; 0 is none

/// What a rank says of itself, alone on its line.
struct State {
  std::uint64_t operation;     // finished so far
  std::uint64_t arrived;       // blocks that have finished the operation at hand
  std::uint64_t failed;        // not 0: some block of this rank has failed
  std::uint64_t telling;       // not 0: some block of this rank writes Control::late
  std::uint64_t turns;         // that warps have drawn (combine_move.h)
  std::uint64_t turns_before;  // the operation at hand
};

/// A window of a peer: its memory, mapped here.
struct MappedWindow {
  std::uint64_t base;
  std::uint64_t bytes;
};

/// What the receiver of a signal makes of its BufferAddresses.
struct PeerBuffers {
  std::uint64_t base[3];  // as mapped here
  std::uint64_t bytes[3];
  std::uint64_t scalar;
  std::uint64_t reserved;
};

/// The shape of a segment, which all ranks of a communicator have in common.
struct SegmentShape {
  std::uint32_t ranks = 1;
  std::uint32_t channels = 1;          // of plans
  std::uint32_t message_channels = 0;  // after them: of sends and receives
  std::uint32_t signal_channels = 0;   // after those: more, of plans with links that carry no data
  std::uint32_t slots = 4;             // <= kMostSlots
  std::uint32_t ll_bytes = 0;          // of one LL slot, flags included; multiples of kLine, as are
  std::uint32_t ll128_bytes = 0;       // these
  std::uint32_t simple_bytes = 128;    // at least that

  // Offsets of the parts.
  TUTTI_HD std::uint32_t data_channels() const { return channels + message_channels; }
  TUTTI_HD bool only_signals(std::uint32_t channel) const { return channel >= data_channels(); }
  /// The nth of a plan. All plans begin with the same channels, whether their links carry data or
  /// not: so ranks that call different things meet, and notice.
  TUTTI_HD std::uint32_t plan_channel(std::uint32_t n) const {
    return n < channels ? n : n + message_channels;
  }
  TUTTI_HD std::size_t pairs() const {
    return std::size_t{ranks} * (data_channels() + signal_channels);
  }
  TUTTI_HD std::size_t progress(std::uint32_t block) const { return kLine * (1 + block); }
  TUTTI_HD std::size_t sent() const { return progress(kMostBlocks); }
  TUTTI_HD std::size_t received() const { return sent() + numbers(); }
  TUTTI_HD std::size_t credits() const { return received() + numbers(); }
  TUTTI_HD std::size_t peers() const { return credits() + kLine * pairs(); }
  TUTTI_HD std::size_t windows() const { return peers() + sizeof(PeerBuffers) * pairs(); }
  TUTTI_HD std::size_t connections() const {
    return rounded(windows() + sizeof(MappedWindow) * kMostWindows * ranks);
  }
  TUTTI_HD std::size_t signals() const {
    return connections() + connection_bytes() * ranks * data_channels();
  }
  TUTTI_HD std::size_t bytes() const {
    return signals() + signal_bytes() * ranks * signal_channels;
  }

  TUTTI_HD std::size_t index(std::uint32_t peer, std::uint32_t channel) const {
    return std::size_t{channel} * ranks + peer;
  }
  /// In RankLaunch::data, of the links to or from `peer`, by channel for data.
  TUTTI_HD std::uint32_t data_row(std::uint32_t peer, bool sends) const {
    return 2 * peer * data_channels() + (sends ? 0 : data_channels());
  }
  /// Written by `peer`, the receiver of what this rank sends.
  TUTTI_HD std::size_t credit(std::uint32_t peer, std::uint32_t channel) const {
    return credits() + kLine * index(peer, channel);
  }
  /// From `peer`, the sender.
  TUTTI_HD std::size_t connection(std::uint32_t peer, std::uint32_t channel) const {
    if (!only_signals(channel)) return connections() + connection_bytes() * index(peer, channel);
    return signals() + signal_bytes() * index(peer, channel - data_channels());
  }

  // Within a connection.
  TUTTI_HD std::size_t header(std::uint32_t slot) const { return sizeof(std::uint64_t) * slot; }
  /// Of a message that is ordered: the bytes of its data. The GPU's receiver knows them; the host,
  /// which may carry the message, does not.
  TUTTI_HD std::size_t length(std::uint32_t slot) const { return kLine + header(slot); }
  TUTTI_HD std::size_t ll(std::uint32_t slot) const {
    return 2 * kLine + std::size_t{ll_bytes} * slot;
  }
  TUTTI_HD std::size_t ll128(std::uint32_t slot) const {
    return ll(slots) + std::size_t{ll128_bytes} * slot;
  }
  TUTTI_HD std::size_t simple(std::uint32_t slot) const {
    return ll128(slots) + std::size_t{simple_bytes} * slot;
  }
  TUTTI_HD std::size_t connection_bytes() const { return simple(slots); }
  /// Of a connection that carries nothing but signals.
  TUTTI_HD std::size_t signal(std::uint32_t slot) const { return kLine * (2 + std::size_t{slot}); }
  TUTTI_HD std::size_t signal_bytes() const { return signal(slots); }

 private:
  static TUTTI_HD std::size_t rounded(std::size_t bytes) {
    return (bytes + kLine - 1) / kLine * kLine;
  }
  TUTTI_HD std::size_t numbers() const { return rounded(sizeof(std::uint64_t) * pairs()); }
};
static_assert(kMostSlots * sizeof(std::uint64_t) <= kLine);

/// A shape and where its parts are: to find that out takes a kernel longer than a short message.
class SegmentLayout : public SegmentShape {
 public:
  SegmentLayout() = default;
  explicit SegmentLayout(const SegmentShape& shape)
      : SegmentShape(shape),
        received_(static_cast<std::uint32_t>(shape.received())),
        credits_(shape.credits()),
        peers_(shape.peers()),
        windows_(shape.windows()),
        connections_(shape.connections()),
        connection_bytes_(shape.connection_bytes()),
        signals_(shape.signals()),
        ll128_(static_cast<std::uint32_t>(shape.ll128(0))),
        simple_(static_cast<std::uint32_t>(shape.simple(0))) {}

  TUTTI_HD std::uint32_t index(std::uint32_t peer, std::uint32_t channel) const {
    return channel * ranks + peer;
  }
  TUTTI_HD std::uint32_t sent() const { return static_cast<std::uint32_t>(SegmentShape::sent()); }
  TUTTI_HD std::uint32_t received() const { return received_; }
  TUTTI_HD std::uint64_t credit(std::uint32_t peer, std::uint32_t channel) const {
    return credits_ + kLine * index(peer, channel);
  }
  TUTTI_HD std::uint64_t peers() const { return peers_; }
  TUTTI_HD std::uint64_t windows() const { return windows_; }
  TUTTI_HD std::uint64_t connection(std::uint32_t peer, std::uint32_t channel) const {
    if (!only_signals(channel)) return connections_ + connection_bytes_ * index(peer, channel);
    return signals_ + std::uint64_t{index(peer, channel - data_channels())} *
                          static_cast<std::uint32_t>(signal_bytes());
  }
  TUTTI_HD std::uint32_t ll128(std::uint32_t slot) const { return ll128_ + ll128_bytes * slot; }
  TUTTI_HD std::uint32_t simple(std::uint32_t slot) const { return simple_ + simple_bytes * slot; }

 private:
  std::uint32_t received_ = 0;
  std::uint64_t credits_ = 0, peers_ = 0, windows_ = 0, connections_ = 0, connection_bytes_ = 0,
                signals_ = 0;
  std::uint32_t ll128_ = 0, simple_ = 0;
};

}  // namespace tutti::device
