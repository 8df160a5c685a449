// What the ranks of a communicator in different processes of a host share in the host's memory, for
// kernels of GPUs with memory that other processes may not map: an inbox for each rank.
//
//     ways of the pairs with higher ranks | Connections from each rank, by channel
//
// The first rank of a pair that has to know decides, once, which way the two talk. The memory is
// sparse: Connections that are never used take none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "device/link_ends.h"
#include "execute/cuda/segment.h"
#include "transport/members.h"

namespace tutti {

/// How the kernels of two ranks in different processes reach each other. On different hosts:
/// forwarded.
enum class DeviceWay : std::uint32_t {
  undecided,
  mapped,     // each has the other's GPU memory mapped
  forwarded,  // through memory of the host (proxy.h)
};

class DeviceInboxes {
 public:
  /// Makes those of this process's ranks, and passes them to the other processes by `members`'
  /// sockets. `connection`: the same on all ranks, as is `shape`. Throws Error.
  DeviceInboxes(const Members& members, const device::SegmentShape& shape,
                ConnectionShape connection);

  /// Maps the inbox of rank `rank` of another process, which `carrier`, a rank of it, has passed;
  /// by `members`' sockets. Throws Error.
  void meet(const Members& members, int rank, int carrier);
  bool has_met(int rank) const { return inboxes_[static_cast<std::size_t>(rank)] != nullptr; }

  /// The way of two ranks that have met, `mine` of this process: `wish`, unless it was decided
  /// before. Throws Error(internal) if the peer has written what is no way.
  DeviceWay decide(int mine, int peer, DeviceWay wish);
  ConnectionShape connection() const { return connection_; }
  /// The ends of the links between `mine`, of this process, and `peer`, which it has met.
  LinkEnds ends(int mine, int peer) const;

 private:
  std::atomic<std::uint32_t>& way(int lower, int higher) const;
  DeviceWay checked(std::uint32_t way, int peer) const;
  /// The Connections from `sender` to `receiver`, one for each channel, in a row.
  std::byte* connections(int receiver, int sender) const;
  std::size_t first_connection() const;

  ConnectionShape connection_;
  std::size_t channels_;
  std::size_t bytes_;
  std::vector<std::shared_ptr<SharedMemory>> inboxes_;  // by rank
};

}  // namespace tutti
