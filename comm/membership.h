// What a rank keeps from one communicator to the next: the ranks that it has met, its ways to them,
// the thread that runs what it has started, and the place where others meet it later. All
// communicators that come of one (split, shrink, grow, reconfigure) share it.
#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "bootstrap/meeting_point.h"
#include "comm/communicator.h"
#include "transport/host/host_peers.h"

namespace tutti {

class Engine;
class Network;

class Membership {
 public:
  explicit Membership(const Options& options);

  const std::string host_id, interfaces;  // as in Options
  const std::shared_ptr<HostPeers> host_peers;
  std::shared_ptr<Network> network;  // null: it has met no other host
  const std::shared_ptr<Engine> engine;

  /// Listens from the first call on, at the address by which this rank has met other hosts, or else
  /// at one that others may reach. Any thread may call it.
  MeetingPoint& meeting_point();

 private:
  std::mutex mutex_;
  std::unique_ptr<MeetingPoint> meeting_point_;
};

}  // namespace tutti
