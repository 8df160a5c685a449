// What can happen to a peer on another host: it leaves a communicator, or it is gone from all. The
// connection (RemoteRank) reports it to the network, the network to each communicator (OtherHosts,
// then Liveness), all through this one interface. docs/failures.md follows a death all the way.
//
// Threads: RemoteRank reports an end from the reactor's thread. The news that a peer has left comes
// from the reactor's thread, or from the thread of a rank that drives the wire. Network::join()
// reports earlier events on its caller's thread. For each communicator, one event comes at a time.
//
// Locks: the network holds its list of listeners while it reports, so that Network::leave() returns
// only when nobody is inside a listener. So a handler may take a lock of its own, send notes
// (Network::tell()), record a failure and ring doorbells; it does not wait, does not join, leave or
// refuse a communicator, and does not call the wire or the connection that reports.
#pragma once

#include <cstdint>
#include <string>

namespace tutti {

/// How a peer went: it said good-bye; its process ended; it may well be there, but nothing comes
/// through, because the network is down or the peer has hung up; or this rank itself cannot hold
/// the connection, because its system refuses it memory or descriptors.
enum class Departure : std::uint8_t { left, died, cut_off, refused };

class PeerEvents {
 public:
  virtual ~PeerEvents() = default;
  /// Peer `peer` has left `communicator`, and all that it had sent there has come. Peers have their
  /// numbers in the job; inside a communicator, their ranks.
  virtual void on_left(int peer, std::uint64_t communicator) = 0;
  /// Nothing more comes from peer `peer`, in any communicator. `why` continues a sentence about it
  /// ("died").
  virtual void on_gone(int peer, Departure how, const std::string& why) = 0;
};

}  // namespace tutti
