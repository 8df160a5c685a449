// The links of one rank of a communicator, made when a plan first uses them.
//
// Links from ranks of the same host lie in the segment of the host. Each rank has an area there for
// the links that lead to it, in parts. A process maps the parts that it uses:
//
//     part 0: from the host's first rank: messages, channel 0, 1, ... 7 | from the second ...
//     part 1: from the host's first rank: channel 8, ... 15 | from the second ...
//
// `messages` is the connection of send and recv. The segment is sparse: connections that are never
// used take no memory, and parts that a rank never uses no addresses of it.
//
// Links to and from other hosts belong to wires (network/wire.h).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/host/connection.h"
#include "transport/host/doorbell.h"
#include "transport/host/shared_memory.h"

namespace tutti {

class Network;

/// Channels 0 to 254 belong to plans, the last one to send and recv.
inline constexpr int kPlanChannels = 255;
inline constexpr int kMessageChannel = kPlanChannels;
/// Channels of plans that have their connections in part 0: enough for all of ours.
inline constexpr int kFirstChannels = 8;
/// The part of a channel: 8 to 15 are in part 1, 16 to 31 in 2, ... 128 to 255 in 5.
constexpr std::size_t part_of(int channel) {
  if (channel == kMessageChannel) return 0;
  return static_cast<std::size_t>(
      std::bit_width(static_cast<unsigned>(channel) / unsigned{kFirstChannels}));
}
inline constexpr std::size_t kParts = part_of(kPlanChannels - 1) + 1;

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
  Doorbell* doorbell = nullptr;  // of a rank of this host
};

class Links {
 public:
  /// Bytes of the links between `ranks` ranks of a host; SIZE_MAX: too many to be counted.
  static std::size_t bytes(std::size_t ranks, const ConnectionShape& shape);

  /// `peers` by rank; `segment`: of this host, in which the links begin at `offset`. `communicator`
  /// names the communicator on the network; null: there are no other hosts.
  Links(Network* network, std::uint64_t communicator, int rank, ConnectionShape shape,
        std::vector<LinkPeer> peers, std::shared_ptr<SharedMemory> segment, std::size_t offset);
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;

  /// The ends stay where they are. Neither waits. Throw Error where the memory cannot be mapped.
  SendEnd sending(int peer, int channel);
  ReceiveEnd receiving(int peer, int channel);

  /// Bytes that they take here: for messages, which release_memory() gives back; and the rest.
  struct Memory {
    std::size_t messages = 0;
    std::size_t rest = 0;
  };
  Memory memory();
  /// Gives back the memory of messages, and takes it again as messages come. While no rank of this
  /// host sends a message of more than kInlineBytes to this one; those that have come stay, and so
  /// do those that this rank has sent.
  void release_memory();

 private:
  static std::uint32_t index(int peer, int channel) {
    return static_cast<std::uint32_t>(peer) << 8 | static_cast<std::uint32_t>(channel);
  }
  const LinkPeer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  /// Where the connection from the rank at `from` to the one at `to` lies.
  std::byte* connection(int from, int to, int channel);
  /// Of the connections to the rank at `place` and back.
  std::pair<std::byte*, std::byte*> connections(int place, int channel);

  Network* network_;
  std::uint64_t communicator_;
  int rank_;
  ConnectionShape shape_;
  std::vector<LinkPeer> peers_;
  const std::shared_ptr<SharedMemory> segment_;
  const std::size_t offset_;
  std::size_t places_ = 0;  // ranks on this host
  std::map<std::pair<int, std::size_t>, std::shared_ptr<SharedMemory>> parts_;  // by place and part
  std::unordered_map<std::uint32_t, Sender> senders_;
  std::unordered_map<std::uint32_t, Receiver> receivers_;
  std::set<int> remote_;  // members on other hosts to which there are links
};

}  // namespace tutti
