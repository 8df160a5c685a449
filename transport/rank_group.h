// The ranks of one communicator and what they share, in parts with one subject each:
//
//     Members        who the ranks are, and on which hosts     (members.h)
//     ControlBlocks  what each rank says of itself             (control_blocks.h)
//     Diagnostics    what the ranks do, for error messages     (diagnostics.h)
//     Liveness       who is gone, and the first failure        (liveness.h)
//     Links          the connections between the ranks         (links.h)
//
// A RankGroup joins the ranks and holds the parts; code that needs one part takes that part.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "transport/control_blocks.h"
#include "transport/diagnostics.h"
#include "transport/host_tree.h"
#include "transport/links.h"
#include "transport/liveness.h"
#include "transport/members.h"

namespace tutti {

class Joining;
class Network;

/// What a rank says of itself before the others see it.
struct RankCard {
  bool allows_cma = true;
  /// Fills in ControlBlock::area, for the layer above that knows its layout; may be empty.
  std::function<void(ControlBlock&)> lay_out;
};

class RankGroup : public Members {
 public:
  /// Collective over the ranks. `network` leads to those on other hosts; null where there are none.
  /// Throws Error.
  RankGroup(std::shared_ptr<HostPeers> host_peers, std::shared_ptr<Network> network, Ranks ranks,
            ConnectionShape shape, const RankCard& says, Deadline deadline);
  ~RankGroup();

  ConnectionShape shape() const { return shape_; }
  ControlBlocks& blocks() { return blocks_; }
  /// What rank `rank` says of itself; of one on another host, what it has said last.
  ControlBlock& control(int rank) { return blocks_.of(rank); }
  ControlBlock& control() { return blocks_.own(); }
  Diagnostics& diagnostics() { return diagnostics_; }
  Liveness& liveness() { return liveness_; }
  const Liveness& liveness() const { return liveness_; }
  Links& links() { return *links_; }

  /// Whether every rank can read and write every other's plain memory.
  bool cma_everywhere() const { return cma_everywhere_; }
  /// This rank will not join communicator `id`, because rank `because_of` is gone (-1: for other
  /// reasons), whatever the others do.
  void refuse(std::uint64_t id, int because_of);

  /// The way to the other hosts; null: there are none.
  Network* network() const { return network_.get(); }
  const std::shared_ptr<Network>& shared_network() const { return network_; }
  /// Returns when no rank of this host that is busy, as `is_busy` says of each, is so any more;
  /// dead ranks are not. After `patience`: a rank that still is; else -1.
  int wait_while_busy(const std::function<bool(int)>& is_busy, std::chrono::milliseconds patience);
  /// When the communicator has failed: returns when no rank of this host reads or writes this one's
  /// memory, and then none will. A rank that is stopped meanwhile is waited for 2 s, and named in a
  /// warning.
  void wait_until_untouched();

  /// Of links to and from other hosts: takes in what has come, and sends on what was left.
  void poll_network() {
    if (!one_host()) poll_other_hosts();
  }
  /// What carries the bytes between the ranks, as far as this one knows, for people: "shared
  /// memory inside hosts, tcp across".
  std::string transports() const;

 private:
  /// The segment of a host holds its ranks' control blocks, a place for the losses of the host, and
  /// the links between its ranks, which are mapped as they are used.
  struct SegmentLayout {
    std::size_t losses = 0, links = 0, bytes = 0;
  };
  SegmentLayout lay_out_segment() const;
  void poll_other_hosts();

  // The new communicator exists only if all ranks have joined, and all ranks see the same, even
  // where some die: a rank that was dead before it had joined makes it fail on all others; a rank
  // that dies later makes it fail on none. (The survivors then all shrink the same communicator.)
  // On one host, a rank joins when it has all segments, and what a rank sent before it died is
  // there. A rank that gives up on a late rank says so where that rank will see it (decide_here).
  // Several hosts agree (joining.h).
  void join_host(Deadline deadline);
  /// Whether this rank can read the memory of some of its host, at distances 1, 2, 4, ... The
  /// kernel decides by users, namespaces and flags of processes. So where all ranks find that they
  /// can, each can read all: processes of two kinds stand beside each other somewhere, in either
  /// order.
  bool cma_works() const;
  void join_other_hosts(Joining& joining, Deadline deadline);
  /// Gives up on the new communicator, unless it is too late for that.
  void give_up(const Failure& failure);
  /// Sleeps until `done`, of which the ranks of this host are rung, or until it is time to look
  /// around again, in a wait that has `begun` then.
  void wait_to_join(std::chrono::steady_clock::time_point begun, const std::function<bool()>& done);
  /// One rank of each host speaks for it to the other hosts: the first that is not ending.
  bool speaks_for_host() const;

  const std::shared_ptr<Network> network_;
  const ConnectionShape shape_;
  const SegmentLayout layout_;
  ControlBlocks blocks_;
  const std::unique_ptr<HostTree> tree_;  // null: there is one host
  Diagnostics diagnostics_;
  Liveness liveness_;
  std::unique_ptr<Links> links_;
  bool cma_everywhere_ = true;
  std::atomic<bool> was_touched_{false};  // by a rank that is stopped
};

}  // namespace tutti
