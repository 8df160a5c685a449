// A rank's connection to the server of a rendezvous. The rank finds the server, both prove that
// they know the secret, and this code says what is wrong where the server is not there, or no more.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "bootstrap/frames.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/rendezvous_protocol.h"
#include "transport/sockets/socket.h"

namespace tutti {

class RendezvousConnection {
 public:
  /// `who`: the rank, for messages. `reunion`: as rendezvous() takes it; it outlives this.
  RendezvousConnection(const protocol::Ticket& ticket, std::string who, const Reunion* reunion);

  /// Connects, and proves both sides to each other. Makes attempts while that may still succeed.
  /// Throws Error, at `deadline` at the latest.
  void open(Deadline deadline);
  const FileDescriptor& socket() const { return socket_; }
  const protocol::Session& session() const { return session_; }
  void say(const protocol::Buffer& frame, Deadline deadline) const;

  /// Throws Error where the server has gone, or has not answered in time.
  void check(IoResult result) const;
  [[noreturn]] void throw_garbled() const;
  /// `what` has happened before the deadline.
  [[noreturn]] void throw_timed_out(std::string_view what) const;

 private:
  using Clock = std::chrono::steady_clock;

  /// One attempt. False: worth another one.
  bool introduce(Deadline deadline);
  /// False where a connection that did not come about is worth another attempt.
  bool may_come_back(int error);
  [[noreturn]] void throw_first_gone(std::string_view why) const;

  const protocol::Ticket ticket_;
  const std::string where_;
  const std::string who_;
  const Reunion* const reunion_;  // null: the ranks meet by a unique id

  FileDescriptor socket_;
  protocol::Session session_;
  Clock::duration pause_ = std::chrono::milliseconds(2);
  Clock::time_point refused_since_{};
  Clock::time_point rejected_since_{};
  int rejections_ = 0;
};

}  // namespace tutti
