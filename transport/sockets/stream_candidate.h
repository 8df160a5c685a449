// One stream of a connection to a rank on another host, while the connection comes about. This
// rank has dialled it, or has accepted it:
//
//     dialler -> acceptor          Proof, StreamHello asks         (behind the handshake)
//     acceptor -> dialler          StreamHello accepted, or refused
//     lower -> higher identity     StreamHello chosen              (over the control stream)
//
// It is ready once it has been accepted. Each of two ranks may dial the other, so two connections
// may come about between them. The rank with the lower identity chooses the first one that has all
// its streams ready. Neither rank uses a connection that was not chosen.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>

#include "transport/sockets/handshake.h"
#include "transport/sockets/introduction.h"
#include "transport/sockets/socket.h"

namespace tutti {

/// What is said of a stream. All its forms are as long as this one, and carry a MAC.
struct StreamHello {
  enum Verdict : std::uint32_t { asks = 0, accepted = 1, chosen = 2, refused = 3 };
  std::uint64_t from = 0, to = 0;  // identities
  std::uint32_t stream = 0;        // RemoteRank::kControl, kData, kSecond
  std::uint32_t verdict = asks;
  std::uint64_t connection = 0;  // its dialler counts them from 1
};
/// As it travels.
struct SignedStreamHello {
  StreamHello hello;
  protocol::Bytes32 mac{};

  static SignedStreamHello of(const StreamHello& hello, const protocol::Session& session) {
    return {hello, session.mac("stream", {protocol::bytes_of(hello)})};
  }
  bool is_genuine(const protocol::Session& session) const {
    return protocol::equal(mac, of(hello, session).mac);
  }
};

class StreamCandidate {
 public:
  enum class State : std::uint8_t { none, introducing, asked, ready, chosen, failed };

  StreamCandidate() = default;
  /// Dialled: `socket` is connecting, or empty, with errno. It will say `hello`. `hears_choice`:
  /// the peer is the one that chooses, and says so over this stream.
  StreamCandidate(FileDescriptor socket, const protocol::Bytes32& secret, const StreamHello& hello,
                  bool hears_choice);
  /// Accepted: says `answer`. One that was refused has failed.
  StreamCandidate(FileDescriptor socket, const protocol::Session& session,
                  const StreamHello& answer, bool hears_choice);

  /// Goes on as far as that is possible now. Where it fails, it closes the socket.
  State step();
  /// Tells the peer that this connection is the one; false: the stream has ended.
  bool choose();

  State state() const { return state_; }
  bool is_ready() const { return state_ == State::ready || state_ == State::chosen; }
  /// Whether the peer's host has let the socket connect.
  bool is_answered() const;
  /// Whether nothing more can come of it than what has come.
  bool is_over() const;
  explicit operator bool() const { return fd() >= 0; }
  int fd() const { return attempt_.descriptor() >= 0 ? attempt_.descriptor() : socket_.fd(); }
  /// What step(), or is_over(), waits for: epoll's.
  std::uint32_t events() const;

  // Of one that has failed.
  const std::string& why() const { return why_; }
  /// Nobody listens there, or something answers so (a firewall).
  bool is_turned_away() const { return error_ == ECONNREFUSED; }
  /// This process has no descriptor for it.
  bool lacks_descriptors() const { return tutti::lacks_descriptors(error_); }
  /// The peer does not want any connection.
  bool is_refused() const { return refused_; }

  // Of one that is ready.
  FileDescriptor& socket() { return socket_; }
  const protocol::Session& session() const { return session_; }

 private:
  State fail(std::string why);
  bool introduce();
  bool read_answer();
  void read_choice();
  /// Reads a hello of the peer; false: not all of it has come, or it has failed.
  bool read_hello();
  bool say(const StreamHello& hello);

  State state_ = State::none;
  Introduction attempt_;
  FileDescriptor socket_;
  protocol::Session session_;
  StreamHello own_;  // what this side has said, or will say
  bool hears_choice_ = false;
  SignedStreamHello heard_;
  std::size_t got_ = 0;  // bytes of it
  std::string why_;
  int error_ = 0;
  bool refused_ = false;
};

}  // namespace tutti
