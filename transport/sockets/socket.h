// Sockets as the rendezvous, the id hand-over and the peers of a host use them: addresses, and
// reads and writes of exact sizes that end at a deadline. Every descriptor is close-on-exec and
// non-blocking; nothing here raises SIGPIPE.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/file_descriptor.h"
#include "core/wait.h"

namespace tutti {

/// Milliseconds until `deadline` as poll(2) takes them: rounded up, never negative.
int milliseconds_until(Deadline deadline);
/// milliseconds_until(), but a moment at most on a thread that may be interrupted.
int poll_timeout(Deadline deadline);

/// Whether `fd` became ready for `events` (poll(2)'s) before the deadline. Throws Error(aborted) on
/// a background thread when the process exits, as do the functions below that wait.
bool wait_for(int fd, short events, Deadline deadline);

/// An IPv4, IPv6 or abstract unix address.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

/// From an IPv4 or IPv6 literal, a link-local one with its interface ("fe80::1%eth0"); nothing for
/// other text (names are not resolved).
std::optional<SocketAddress> parse_address(std::string_view literal, std::uint16_t port);
/// The address without the port: "127.0.0.1", "::1".
std::string host_text(const SocketAddress& address);
bool is_loopback(const SocketAddress& address);
/// Of IPv6: it says nothing without the interface on which it holds.
bool is_link_local(const SocketAddress& address);
/// Whether the address is one host's: not 0.0.0.0 or ::, not a broadcast or multicast one.
bool is_of_one_host(const SocketAddress& address);
/// This address with another port.
SocketAddress with_port(const SocketAddress& address, std::uint16_t port);
/// The abstract unix address `name` (which must fit: 107 bytes).
SocketAddress abstract_address(std::string_view name);
/// "127.0.0.1:4711", "[::1]:4711".
std::string to_string(const SocketAddress& address);

/// A stream socket that listens at `address` (at ::, for IPv4, too); an empty one, with errno,
/// where the system refuses. `again`: also where connections of an earlier listener are not
/// forgotten yet.
FileDescriptor listen_at(const SocketAddress& address, bool again = false);
/// The address that a socket was bound to.
SocketAddress bound_address(const FileDescriptor& socket);
/// The next waiting connection, or an empty socket with errno (EAGAIN: none).
FileDescriptor accept_from(const FileDescriptor& listener);

enum class IoResult : std::uint8_t { done, closed, timed_out };

/// Begins to connect: the socket becomes writable when that has ended, one way or the other. An
/// empty one, with errno, where it cannot begin. `prepare` gets the socket before that.
FileDescriptor start_connecting(const SocketAddress& address,
                                const std::function<void(const FileDescriptor&)>& prepare = {});
/// How it ended: 0, or an errno.
int connecting_error(const FileDescriptor& socket);
/// An attempt to connect that ended at the deadline has errno ETIMEDOUT.
FileDescriptor connect_to(const SocketAddress& address, Deadline deadline);
/// All of `bytes`, or why not. Errors of the connection count as closed.
IoResult read_exactly(const FileDescriptor& socket, std::span<std::byte> bytes, Deadline deadline);
IoResult write_exactly(const FileDescriptor& socket, std::span<const std::byte> bytes,
                       Deadline deadline);

enum class ReadResult : std::uint8_t { more, whole, closed };
/// What has come, into `bytes` from `received` on, which it moves; without waiting. `more` is to
/// come.
ReadResult read_more(const FileDescriptor& socket, std::span<std::byte> bytes,
                     std::size_t& received);

/// The user at the other end of a connected unix socket, when it began to listen or connected; -1
/// when the system does not say.
std::int64_t peer_user(const FileDescriptor& socket);
/// This process's user as the other end sees it, that is, as the kernel knows it: under fakeroot
/// the C library says another one.
std::uint32_t own_user();
/// The process there, when it began to listen or connected: 0 when the system does not say, or it
/// cannot be seen from here.
pid_t peer_process(int socket);

}  // namespace tutti
