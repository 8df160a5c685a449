// A connection between two ranks that have proved themselves to each other: a socket, with seals
// (seal.h) on it where the job asks for them. A sender and a receiver see nothing of the seals,
// except errno EBADMSG where something was altered.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <memory>
#include <span>

#include "core/file_descriptor.h"
#include "transport/sockets/handshake.h"
#include "transport/sockets/seal.h"

namespace tutti {

/// Why a connection ends when the peer does not keep to the rules.
inline constexpr const char* kNonsense = "it has sent what cannot be";
/// What errno EBADMSG means to the user.
inline constexpr const char* kAltered = "what came from it was altered on its way";

class Stream {
 public:
  Stream();
  /// `connector`: this side has connected.
  Stream(FileDescriptor socket, Protection protection, const protocol::Session& session,
         bool connector);
  Stream(Stream&&) noexcept;
  Stream& operator=(Stream&&) noexcept;
  ~Stream();

  int fd() const { return socket_.fd(); }
  explicit operator bool() const { return static_cast<bool>(socket_); }
  /// What has come may then be here, and not in the socket.
  bool is_sealed() const { return sealed_ != nullptr; }

  /// As sendmsg(2), without waiting. What is taken under a seal leaves in its time (flush()).
  ssize_t send(std::span<const iovec> parts);
  /// Sends what was taken before; false, with errno: some is left.
  bool flush();
  bool has_unsent() const;
  /// As recvmsg(2), without waiting. All that has come is handed out: fewer bytes than there is
  /// room for mean that the socket is empty, or has ended.
  ssize_t receive(std::span<const iovec> parts);

 private:
  struct Sealed;

  FileDescriptor socket_;
  std::unique_ptr<Sealed> sealed_;  // null: no seals
};

}  // namespace tutti
