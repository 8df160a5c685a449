// Which ranks of a communicator are there: who has left, who is lost and why, and the first
// failure, which ends the communicator for all ranks.
//
// A rank of this host is gone when its process is. Nobody reports that: ranks that wait look
// (check_peers()). Ranks of other hosts are lost when their connection says so (on_gone()), and the
// ranks of this host agree on that (other_hosts.h). The first failure lies in the block of each
// host's first rank; notes carry it from host to host, along a tree of hosts. A host is left out of
// that only when all its ranks are gone.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/control_blocks.h"
#include "transport/diagnostics.h"
#include "transport/host_losses.h"
#include "transport/network/peer_events.h"

namespace tutti {

class Joining;
class OtherHosts;

class Liveness final : PeerEvents {
 public:
  /// `network` and `tree` lead to the other hosts; null: there are none. `losses` is shared by the
  /// ranks of this host.
  Liveness(const Members& members, ControlBlocks& blocks, Diagnostics& diagnostics,
           Network* network, HostTree* tree, HostLosses losses);
  ~Liveness() override;
  Liveness(const Liveness&) = delete;
  Liveness& operator=(const Liveness&) = delete;

  /// Whether there is a failure; one load of a line that is otherwise never written.
  bool failed() const { return record_.is_there(); }
  /// Records `failure`, for all ranks, unless there is one already.
  void fail(const Failure& failure);
  /// The failure, of a communicator that has failed; waits (briefly) for one whose record is still
  /// to come or being written.
  Failure failure() const;
  /// Throws the failure as an Error.
  [[noreturn]] void throw_failure() const;
  void throw_if_failed() const {
    if (failed()) throw_failure();
  }

  /// For ranks that wait, now and then: exchanges with the peers what came for them on the sockets
  /// of the host, and looks which ranks of the host are dead (system calls). A dead process that
  /// had not left is a failure of the communicator, in which this rank was `doing` something.
  void check_peers(std::string_view doing);
  /// check_peers() before the caller records another failure. Most failures follow from a death:
  /// another rank heard of it, gave up, and called something else. If that rank is on another host,
  /// the news of the death may come by another way than its messages, so this waits a moment for
  /// it.
  void check_peers_first(std::string_view doing);

  bool has_left(int rank) const { return blocks_.has_left(rank); }
  /// The ranks that have died, or that are on a host out of reach; not those that have left. All
  /// ranks of this host get the same ranks of other hosts.
  std::vector<int> dead_ranks();
  /// The ranks of this host with a process that is gone, or about to be, whether they had left or
  /// not.
  std::vector<int> ending_ranks() const;
  /// Rank `rank`, of another host, is lost to the ranks of this host from now on, with all of its
  /// host where it is cut off. That alone is no failure of the communicator.
  void lose(int rank, Departure how, const std::string& why);
  /// What rank `rank`, of another host, does ("is out of reach"), if it is lost.
  std::optional<std::string> why_lost(int rank) const;

  /// How hosts agree whether all ranks have joined; null: there is one host.
  Joining* joining();
  /// All ranks have joined: from now on losses are failures, and so are those so far.
  void begin();

 private:
  void on_left(int rank, std::uint64_t communicator) override;
  void on_gone(int rank, Departure how, const std::string& why) override;
  std::string lost_text(int rank, const std::string& why, std::string_view noticed) const;

  const Members& members_;
  ControlBlocks& blocks_;
  const FailureRecord& record_;
  Diagnostics& diagnostics_;
  Network* const network_;
  std::unique_ptr<OtherHosts> hosts_;  // null: there are none
};

}  // namespace tutti
