// What the hosts of a communicator tell each other, along the tree of hosts: whether all ranks have
// joined (joining.h), which ranks are lost, and the first failure.
//
// The ranks of a host agree on which ranks are lost (host_losses.h). Where a rank's process has
// ended, that rank alone is lost. Where nothing comes through from it any more, its whole host is
// lost: the connections of two hosts break one after the other, but that is one event, and the
// ranks have to part at one place.
//
// Notes are numbers in the byte order of the machine, which the handshake has compared.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/control_blocks.h"
#include "transport/diagnostics.h"
#include "transport/host_losses.h"
#include "transport/host_tree.h"
#include "transport/joining.h"
#include "transport/network/network.h"
#include "transport/network/peer_events.h"

namespace tutti {

class OtherHosts final : Network::Listener {
 public:
  /// `losses` is shared by the ranks of this host. `events` hears which ranks of other hosts (by
  /// their ranks here) leave or are lost; from any thread.
  OtherHosts(Network& network, HostTree& tree, ControlBlocks& blocks, HostLosses losses,
             Diagnostics& diagnostics, PeerEvents& events);
  ~OtherHosts() override;
  /// From now on it hears what the others say.
  void begin() { network_.join(tree_.communicator(), *this); }

  Joining& joining() { return joining_; }

  /// Tells all other hosts of the first failure here.
  void spread(const Failure& failure) { spread(failure, -1); }

  /// Why nothing comes from `rank` any more; none: it is there, or has left.
  std::optional<std::string> why_lost(int rank) const;
  /// The ranks that are lost to this host.
  std::vector<int> lost();
  /// `rank`, of another host, is lost to this host from now on, with all of its host where it is
  /// cut off. That alone is no failure of the communicator.
  void lose(int rank, Departure how, const std::string& why);

 private:
  static constexpr std::uint32_t kFailure = 3;  // Joining and Diagnostics have other notes

  bool has(int member) const override { return tree_.rank_of(member) >= 0; }
  void on_note(int member, std::uint32_t type, std::span<const std::byte> bytes) override;
  void on_left(int member, std::uint64_t communicator) override;
  void on_refused(int member, int because_of) override;
  void on_gone(int member, Departure how, const std::string& why) override;

  void leave();
  void on_failure(int rank, const Failure& failure);
  void spread(const Failure& failure, int except);

  Network& network_;
  HostTree& tree_;
  ControlBlocks& blocks_;
  HostLosses losses_;
  Diagnostics& diagnostics_;
  PeerEvents& events_;
  Joining joining_;

  mutable std::mutex mutex_;
  std::map<int, std::string> lost_;
};

}  // namespace tutti
