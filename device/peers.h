// The segments of a communicator's ranks, as one process's kernels address them: its own ranks' as
// they are, those of other processes mapped when a call first needs them, for each of its GPUs.
//
// Where one of two ranks cannot map the other's segment, or must not (TUTTI_CUDA_IPC), messages
// between the two go through the host (host_slots.h). Then all collectives of the communicator do,
// too, because its ranks have to agree on the way of the data.
//
// Kernels reach ranks on other hosts through the host and the network, and this rank does not wait
// for them: they know by themselves all that has to be agreed on.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "device/board.h"
#include "device/executors.h"
#include "device/host_slots.h"
#include "device/inbox.h"
#include "device/window_board.h"
#include "execute/host/peer_wait.h"

namespace tutti {

class DevicePeers {
 public:
  /// Connects this process's ranks to each other, and shows them to the other processes. Throws
  /// Error: invalid_argument for GPUs that cannot reach each other. `agreements`: where the
  /// processes of one host agree; null where there are other hosts.
  DevicePeers(RankGroup& group, const device::SegmentShape& shape, const DeviceExecutors& executors,
              std::shared_ptr<DeviceWindowBoard> agreements);
  ~DevicePeers() { leave(); }
  DevicePeers(const DevicePeers&) = delete;
  DevicePeers& operator=(const DevicePeers&) = delete;

  /// Rank `group.rank()`, of this process, takes part.
  void join(RankGroup& group);

  /// Returns when the kernels of `mine`, the ranks of this process for which this thread makes the
  /// calls, can reach the memory of `ranks`. Waits for the first call on GPU memory of the
  /// processes of this host that have it, as long as `policy` says. Throws Error: peer_lost,
  /// timed_out, or what has failed the communicator.
  void reach(RankGroup& group, std::span<const int> mine, std::span<const int> ranks,
             const WaitPolicy& policy);

  /// Returns when all processes know the way of collectives of all ranks. Call it after reach() of
  /// all ranks. Waits for the first collective of each process. Throws as reach().
  void agree(RankGroup& group, std::span<const int> mine, const WaitPolicy& policy);

  /// Whether collectives go through the host; after agree().
  bool collectives_through_host() const;
  /// Whether the messages between a rank of this process and rank `peer` do; after reach().
  bool messages_through_host(int mine, int peer) const;
  /// Null where no other process takes part; its executors are there if one of these two is true.
  DeviceHostSlots* host() { return host_.get(); }
  const DeviceHostSlots* host() const { return host_.get(); }

  /// Links rank `mine` of this process to rank `peer`, if that is on another host: what a kernel
  /// writes for it gets there. After reach(). Throws Error.
  void link(int mine, int peer) {
    if (!board_.is_here(peer)) host_->link(mine, peer);
  }
  /// Whether some ranks are on other hosts.
  bool spans_hosts() const { return blocks_across_ != 0; }
  /// The blocks that a rank may have for a collective of ranks on several hosts, which all know
  /// alike; 0: all are on this host.
  std::uint32_t collective_blocks() const { return blocks_across_; }

  /// Unmaps everything; when nothing runs any more. Then only are_using_ours() has a meaning.
  void leave();
  /// Whether others may still have this process's memory mapped, or lack messages that only this
  /// process can pass on to them, after leave().
  bool are_using_ours() const {
    return board_.is_mapped() || (host_ != nullptr && host_->is_needed());
  }

 private:
  static constexpr std::uint32_t kMapsAll = ~0U;  // the question; others are kinds of calls

  struct Peer {
    DeviceBoard::Card card;
    bool known = false;  // the card is there, and an inbox
    // Of another process's rank, by this process's GPUs; none: not mapped.
    std::vector<device::Mapping> mappings;
    std::string why_not;  // it is not mapped
  };

  /// Connects the ranks of this process.
  void connect_here();
  void show(const Members& group);
  /// Whether rank `rank` of another process has left, and so ended what it had shown `mine`.
  bool has_left(std::span<const int> mine, int rank) const;
  /// Whether `mine` are connected to rank `rank`; connects them if its card is there.
  bool connect(RankGroup& group, std::span<const int> mine, int rank);
  /// Takes in what rank `rank` of another process shows.
  void meet(const Members& group, int rank, const DeviceBoard::Card& card);
  void map(Peer& peer, int rank, const FileDescriptor& fd);
  /// How `mine` and rank `rank` of another process reach each other. Decides it, if need be.
  DeviceWay way(int mine, int rank);
  /// Whether all ranks of this process have the memory of all others mapped.
  bool maps_all();
  /// The blocks that every rank of this host may have, once all their cards are known.
  std::uint32_t agreed_blocks() const;

  device::SegmentShape shape_;
  const DeviceExecutors& executors_;
  DeviceBoard board_;
  const std::shared_ptr<DeviceWindowBoard> agreements_;
  bool spans_processes_ = false;
  std::uint32_t blocks_across_;  // collective_blocks()
  bool shares_;                  // maps others' memory, and shows its own
  std::unique_ptr<DeviceInboxes> inboxes_;
  std::unique_ptr<DeviceHostSlots> host_;
  mutable std::mutex mutex_;  // of what follows
  std::vector<Peer> peers_;
  std::size_t missing_ = 0;  // on this host, that are not known
  // By rank of this process, and peer. An executor is touched by the thread that makes its calls.
  std::vector<std::vector<bool>> connected_;
  std::vector<std::vector<DeviceWay>> ways_;  // the same; of ranks of other processes
  std::vector<bool> agreed_;  // by rank of this process: it knows how collectives go
  bool collectives_through_host_ = false;
};

}  // namespace tutti
