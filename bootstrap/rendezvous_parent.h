// The rank from which this one gets the roster: connects to it, also again after a lost connection,
// and receives the roster. Nothing here waits.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "bootstrap/rendezvous_protocol.h"
#include "core/error.h"
#include "transport/sockets/introduction.h"
#include "transport/sockets/socket.h"

namespace tutti {

class RendezvousParent {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// `rank` is the parent's, `secret` the tree's. Gives up if the two have not proved themselves to
  /// each other before `patience`.
  RendezvousParent(int rank, const SocketAddress& address, const protocol::Bytes32& secret,
                   const protocol::Child& me, std::size_t roster_bytes, Time patience);

  enum class State { under_way, whole, failed };
  State step(Time now);
  /// step() has work at next_wake(), and at `events` of poll(2) on descriptor(), if there is one.
  int descriptor() const { return pausing_ ? -1 : attempt_.descriptor(); }
  short events() const { return attempt_.events(); }
  Time next_wake() const;

  std::vector<std::byte> take_roster() { return std::move(roster_); }
  /// Why it failed, as a continuation of "rank 9 of 20".
  Error trouble(const std::string& me) const;

 private:
  void try_again(Time now);
  std::string problem() const;

  const int rank_;
  const SocketAddress address_;
  const protocol::Bytes32 secret_;
  const protocol::Child me_;
  const Time patience_;
  Introduction attempt_;
  bool pausing_ = false;
  bool introduced_ = false;
  Time again_{};
  std::chrono::nanoseconds pause_;
  Time refused_since_{};
  std::string problem_;  // of the last attempt
  std::vector<std::byte> roster_;
  std::size_t received_ = 0;
};

}  // namespace tutti
