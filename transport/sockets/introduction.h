// The side of a handshake that connects (transport/sockets/handshake.h), without waiting; the other
// side is a WaitingRoom. It makes one attempt; its owner decides whether to make another.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/sockets/handshake.h"
#include "transport/sockets/socket.h"

namespace tutti {

class Introduction {
 public:
  enum class State : std::uint8_t { connecting, greeting, answer, done, failed };
  enum class Reason : std::uint8_t {
    none,
    unreachable,    // error() says why
    turned_away,    // closed before the greeting had come, as when all places were wanted
    stranger,       // what answers is not Tutti
    other_version,  // version()
    rejected,       // closed after the proof: it was wrong, or the place was wanted
    wrong_answer,   // the other side does not know the secret
  };

  Introduction() = default;
  /// Begins.
  Introduction(const SocketAddress& address, const protocol::Bytes32& secret)
      : Introduction(start_connecting(address), secret) {}
  /// Begins over `socket`, which is connecting or connected; or empty, with errno.
  Introduction(FileDescriptor socket, const protocol::Bytes32& secret);

  /// Goes on as far as that is possible now.
  State step();
  State state() const { return state_; }
  bool ended() const { return state_ == State::done || state_ == State::failed; }
  /// What step() waits for: `events` of poll(2) on descriptor().
  int descriptor() const { return socket_.fd(); }
  short events() const;

  Reason reason() const { return reason_; }
  int error() const { return error_; }
  std::uint32_t version() const { return greeting_.version; }

  /// Once it is done; what carries a MAC may be said right behind the proof, so from `answer` on.
  FileDescriptor& socket() { return socket_; }
  const protocol::Session& session() const { return session_; }

 private:
  State fail(Reason reason, int error = 0);

  State state_ = State::failed;
  Reason reason_ = Reason::none;
  int error_ = 0;
  protocol::Bytes32 secret_{};
  FileDescriptor socket_;
  protocol::Greeting greeting_;
  protocol::Bytes32 answer_{};
  std::size_t received_ = 0;
  protocol::Session session_;
};

}  // namespace tutti
