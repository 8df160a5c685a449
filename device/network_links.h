// A rank's links to ranks on other hosts that carry kernels' messages. They are links like the
// communicator's own, in a group of their own on its network; the rank leaves this group when its
// process's team ends. So kernels' messages still go out after the rank has left the communicator,
// as inside a host.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "device/gpu_links.h"
#include "device/link_ends.h"
#include "transport/network/network.h"
#include "transport/rank_group.h"

namespace tutti {

class DeviceNetworkLinks final : Network::Listener {
 public:
  /// The links of rank `group.rank()` to the ranks of its communicator on other hosts. They may
  /// outlive `group`.
  explicit DeviceNetworkLinks(RankGroup& group);
  /// By now the published messages are sent, or never will be, and nobody uses the links any more.
  ~DeviceNetworkLinks() override;
  DeviceNetworkLinks(const DeviceNetworkLinks&) = delete;
  DeviceNetworkLinks& operator=(const DeviceNetworkLinks&) = delete;

  /// The ends of the links with rank `peer`, on another host; valid as long as this object.
  /// Connects. Throws Error: system if there is no way to it, or no memory.
  LinkEnds ends(int peer, std::size_t channels, const ConnectionShape& shape);
  /// The ends of ends(), for data in memory of this rank's GPU; empty: the network between the two
  /// ranks reaches no such memory.
  std::optional<GpuLinks::Ends> gpu_ends(int peer, const LinkEnds& ends);
  /// Whether rank `peer` has ended its links, having sent all there was.
  bool has_left(int peer) const;
  /// Whether rank `peer` is gone altogether, so that nothing can be sent to it.
  bool is_gone(int peer) const;
  /// Perhaps no rank is left to take the last messages of this one; that does not matter.
  void set_failed() { failed_ = true; }

 private:
  bool has(int member) const override { return std::ranges::count(members_, member) > 0; }
  void on_note(int, std::uint32_t, std::span<const std::byte>) override {}
  void on_left(int member, std::uint64_t communicator) override;
  void on_refused(int member, int because_of) override;
  void on_gone(int member, Departure how, const std::string& why) override;

  const std::shared_ptr<Network> network_;
  const std::vector<int> members_;
  const int rank_;
  const std::uint64_t id_;
  Doorbell quiet_{};  // nobody sleeps on it: the thread that moves messages looks
  bool failed_ = false;
  mutable std::mutex mutex_;   // of what follows
  std::set<int> left_, gone_;  // numbers in the job
};

}  // namespace tutti
