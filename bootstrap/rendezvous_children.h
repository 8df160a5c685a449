// The ranks that get the roster from this one. They connect to this rank's listener, and prove
// themselves as all ranks do. The listener is open from before the rank joins until all have met.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "bootstrap/frames.h"
#include "bootstrap/rendezvous_protocol.h"
#include "transport/sockets/socket.h"
#include "transport/sockets/waiting_room.h"

namespace tutti {

class RendezvousChildren {
 public:
  using Time = WaitingRoom::Time;

  /// Listens at the address of this host that leads to `server`; ranks reach each other the same
  /// way. Throws Error(system).
  RendezvousChildren(int rank, int size, const protocol::Bytes32& secret,
                     const FileDescriptor& server);

  protocol::Endpoint endpoint() const { return endpoint_; }
  /// Readable (poll(2)) when there is work.
  int descriptor() const { return epoll_.fd(); }
  Time next_wake(Time now) const;
  /// Does the work at hand, without waiting.
  void serve(Time now);
  /// From now on children of the job with `nonce` get `roster`.
  void give(protocol::Buffer roster, const protocol::Bytes32& nonce);

 private:
  struct Child {
    FileDescriptor socket;
    protocol::Session session;
    Time since;
    protocol::FrameReader reader;
    protocol::Outbox outbox;
    protocol::Child said;  // rank -1: nothing yet
    bool fed = false;      // the roster is in the outbox
  };
  using Children = std::unordered_map<std::uint64_t, Child>;

  void accept(Time now);
  void read_proof(std::size_t place, Time now);
  void serve_child(std::uint64_t who);
  /// False: stop serving `child`.
  bool hear(std::uint64_t who, Child& child);
  bool feed(std::uint64_t who, Child& child);

  const int rank_;
  const int size_;
  FileDescriptor listener_;
  FileDescriptor epoll_;
  protocol::Endpoint endpoint_;
  WaitingRoom waiting_room_;
  bool accepting_ = true;
  Children children_;
  std::uint64_t next_child_;
  protocol::Buffer roster_;
  protocol::Bytes32 nonce_{};
};

}  // namespace tutti
