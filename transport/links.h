// The links of one rank of a communicator, made when a plan first uses them.
//
// Links from ranks of the same host lie in segments of shared memory, of which each rank has some
// for what leads to it, and the others map them:
//
//     segment 0: ControlBlock | from the host's first rank: messages, channel 0, 1, ... 7 | second
//     ... segment 1: from the host's first rank: channel 8, ... 15 | from the second ...
//
// `messages` is the connection of send and recv. Segment 0 is there from the start; the further
// ones are made when the receiver first uses one, and sent to the senders, which need not have them
// before they want to send. Segments are sparse: connections that are never used take no memory.
//
// Links to and from other hosts belong to wires (wire.h).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/connection.h"
#include "transport/doorbell.h"
#include "transport/host_peers.h"
#include "transport/network.h"
#include "transport/shared_memory.h"

namespace tutti {

/// Channels 0 to 254 belong to plans, the last one to send and recv.
inline constexpr int kPlanChannels = 255;
inline constexpr int kMessageChannel = kPlanChannels;
/// Those of plans that have their connections in segment 0: enough for all of ours.
inline constexpr int kFirstChannels = 8;
/// The others: 8 to 15 in segment 1, 16 to 31 in 2, ... 128 to 255 in 5.
constexpr std::size_t segment_of(int channel) {
  if (channel == kMessageChannel) return 0;
  return static_cast<std::size_t>(
      std::bit_width(static_cast<unsigned>(channel) / unsigned{kFirstChannels}));
}
inline constexpr std::size_t kSegments = segment_of(kPlanChannels - 1) + 1;

/// An end of a link, and the doorbell that tells the other end.
struct SendEnd {
  Sender* link;
  Doorbell* doorbell;
};
struct ReceiveEnd {
  Receiver* link;
  Doorbell* doorbell;
};

/// One rank of a communicator, as its links see it.
struct LinkPeer {
  int member = 0;                // its number in the job
  int place = -1;                // among the ranks of this host; -1: it is on another one
  std::uint64_t key = 0;         // names its segments
  Doorbell* doorbell = nullptr;  // of a rank of this host
};

class Links {
 public:
  /// Bytes of a segment 0 for `ranks` ranks of a host.
  static std::size_t first_bytes(std::size_t ranks, const ConnectionShape& shape);

  /// `peers` by rank; `first`: segments 0 of this host's ranks, by place. `group` names the
  /// communicator on the network; null: there are no other hosts.
  Links(std::shared_ptr<HostPeers> host_peers, Network* network, std::uint64_t group, int rank,
        ConnectionShape shape, std::vector<LinkPeer> peers,
        std::vector<std::shared_ptr<SharedMemory>> first);
  ~Links();
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  /// The ends stay where they are. Neither waits: a sender without a connection yet has no room.
  /// receiving() throws Error where there is no memory for its connection.
  SendEnd sending(int peer, int channel);
  ReceiveEnd receiving(int peer, int channel);

  /// Bytes that they take here: for messages, which release_memory() gives back; and for the rest
  /// of this rank's segments.
  struct Memory {
    std::size_t messages = 0;
    std::size_t rest = 0;
  };
  Memory memory();
  /// Gives back the memory of messages, and takes it again as messages come. While no rank of this
  /// host sends a message of more than kInlineBytes to this one; those that have come stay.
  void release_memory();

 private:
  static std::uint32_t index(int peer, int channel) {
    return static_cast<std::uint32_t>(peer) << 8 | static_cast<std::uint32_t>(channel);
  }
  const LinkPeer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  std::uint64_t key(int rank, std::size_t segment) const;
  std::size_t bytes(std::size_t segment) const;
  /// Where the connection from the rank at `place` on `channel` lies in a segment.
  std::byte* connection(const SharedMemory& memory, int place, int channel) const;
  std::byte* my_connection(int peer, int channel);
  const SharedMemory& my_segment(int channel) const;
  /// The memory of the connection to `peer`; null before it has come.
  std::byte* look_for(int peer, int channel);

  std::shared_ptr<HostPeers> host_peers_;
  Network* network_;
  std::uint64_t group_;
  int rank_;
  ConnectionShape shape_;
  std::vector<LinkPeer> peers_;
  int places_ = 0;  // ranks on this host
  std::vector<std::shared_ptr<SharedMemory>> first_;
  struct Further {
    std::shared_ptr<SharedMemory> mine;
    std::vector<bool> sent;  // by rank: whether it was told of mine
    std::map<int, std::shared_ptr<SharedMemory>> theirs;
  };
  std::array<Further, kSegments> further_;  // from 1 on
  std::unordered_map<std::uint32_t, Sender> senders_;
  std::unordered_map<std::uint32_t, Receiver> receivers_;
  std::set<int> remote_;  // members on other hosts to which there are links
};

}  // namespace tutti
