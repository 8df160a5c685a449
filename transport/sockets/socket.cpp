// See socket.h.
#include "transport/sockets/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

#include "core/background.h"

namespace tutti {
namespace {

constexpr int kBacklog = 4096;  // the kernel lowers it to net.core.somaxconn

FileDescriptor stream_socket(int family) {
  return FileDescriptor(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/// Moves all of a buffer with `move(pointer, bytes)`, which is send() or recv().
template <typename Move>
IoResult move_exactly(const FileDescriptor& socket, std::size_t bytes, short events,
                      Deadline deadline, Move move) {
  std::size_t done = 0;
  while (done < bytes) {
    const ssize_t moved = move(done, bytes - done);
    if (moved > 0) {
      done += static_cast<std::size_t>(moved);
    } else if (moved < 0 && errno == EINTR) {
      continue;
    } else if (moved < 0 && errno == EAGAIN) {
      if (!wait_for(socket.fd(), events, deadline)) return IoResult::timed_out;
    } else {
      return IoResult::closed;
    }
  }
  return IoResult::done;
}

}  // namespace

int milliseconds_until(Deadline deadline) {
  const Deadline now = std::chrono::steady_clock::now();
  if (deadline <= now) return 0;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - now).count();
  return static_cast<int>(std::min<std::int64_t>(left + 1, std::numeric_limits<int>::max()));
}

int poll_timeout(Deadline deadline) {
  const int left = milliseconds_until(deadline);
  return Interruptible::any() ? std::min(left, static_cast<int>(kMoment.count())) : left;
}

bool wait_for(int fd, short events, Deadline deadline) {
  while (true) {
    pollfd entries[] = {{fd, events, 0}, {stop_descriptor(), POLLIN, 0}};
    const int ready = ::poll(entries, 2, poll_timeout(deadline));
    if (ready > 0 && entries[0].revents != 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    throw_if_stopping();
    if (ready == 0 && std::chrono::steady_clock::now() >= deadline) return false;
  }
}

std::optional<SocketAddress> parse_address(std::string_view literal, std::uint16_t port) {
  const std::size_t percent = literal.find('%');
  const std::string text(literal.substr(0, percent));
  unsigned interface = 0;
  if (percent != std::string_view::npos) {
    interface = ::if_nametoindex(std::string(literal.substr(percent + 1)).c_str());
    if (interface == 0) return std::nullopt;
  }
  SocketAddress address;
  sockaddr_in ipv4{};
  if (interface == 0 && ::inet_pton(AF_INET, text.c_str(), &ipv4.sin_addr) == 1) {
    ipv4.sin_family = AF_INET;
    ipv4.sin_port = htons(port);
    std::memcpy(&address.storage, &ipv4, sizeof ipv4);
    address.length = sizeof ipv4;
    return address;
  }
  sockaddr_in6 ipv6{};
  if (::inet_pton(AF_INET6, text.c_str(), &ipv6.sin6_addr) == 1) {
    ipv6.sin6_family = AF_INET6;
    ipv6.sin6_port = htons(port);
    ipv6.sin6_scope_id = interface;
    std::memcpy(&address.storage, &ipv6, sizeof ipv6);
    address.length = sizeof ipv6;
    if (interface == 0 || is_link_local(address)) return address;
  }
  return std::nullopt;
}

std::string host_text(const SocketAddress& address) {
  const std::string text = to_string(address);
  const std::size_t colon = text.rfind(':');
  return text.starts_with('[') ? text.substr(1, colon - 2) : text.substr(0, colon);
}

bool is_loopback(const SocketAddress& address) {
  if (address.family() == AF_INET) {
    sockaddr_in ipv4{};
    std::memcpy(&ipv4, &address.storage, sizeof ipv4);
    return (ntohl(ipv4.sin_addr.s_addr) >> 24) == 127;
  }
  sockaddr_in6 ipv6{};
  std::memcpy(&ipv6, &address.storage, sizeof ipv6);
  return IN6_IS_ADDR_LOOPBACK(&ipv6.sin6_addr);
}

bool is_link_local(const SocketAddress& address) {
  if (address.family() != AF_INET6) return false;
  sockaddr_in6 ipv6{};
  std::memcpy(&ipv6, &address.storage, sizeof ipv6);
  return IN6_IS_ADDR_LINKLOCAL(&ipv6.sin6_addr);
}

bool is_of_one_host(const SocketAddress& address) {
  if (address.family() == AF_INET) {
    sockaddr_in ipv4{};
    std::memcpy(&ipv4, &address.storage, sizeof ipv4);
    const std::uint32_t number = ntohl(ipv4.sin_addr.s_addr);
    return number != INADDR_ANY && number != INADDR_BROADCAST && !IN_MULTICAST(number);
  }
  sockaddr_in6 ipv6{};
  std::memcpy(&ipv6, &address.storage, sizeof ipv6);
  return !IN6_IS_ADDR_UNSPECIFIED(&ipv6.sin6_addr) && !IN6_IS_ADDR_MULTICAST(&ipv6.sin6_addr);
}

SocketAddress with_port(const SocketAddress& address, std::uint16_t port) {
  SocketAddress result = address;
  if (address.family() == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&result.storage)->sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6*>(&result.storage)->sin6_port = htons(port);
  }
  return result;
}

SocketAddress abstract_address(std::string_view name) {
  sockaddr_un unix_address{};
  unix_address.sun_family = AF_UNIX;
  const std::size_t length = std::min(name.size(), sizeof unix_address.sun_path - 1);
  std::memcpy(unix_address.sun_path + 1, name.data(), length);
  SocketAddress address;
  std::memcpy(&address.storage, &unix_address, sizeof unix_address);
  address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return address;
}

std::string to_string(const SocketAddress& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  if (address.family() == AF_INET) {
    sockaddr_in ipv4{};
    std::memcpy(&ipv4, &address.storage, sizeof ipv4);
    ::inet_ntop(AF_INET, &ipv4.sin_addr, text, sizeof text);
    return fmt::format("{}:{}", text, ntohs(ipv4.sin_port));
  }
  sockaddr_in6 ipv6{};
  std::memcpy(&ipv6, &address.storage, sizeof ipv6);
  ::inet_ntop(AF_INET6, &ipv6.sin6_addr, text, sizeof text);
  char interface[IF_NAMESIZE] = "";
  const bool has_interface = is_link_local(address) && ipv6.sin6_scope_id != 0 &&
                             ::if_indextoname(ipv6.sin6_scope_id, interface) != nullptr;
  return fmt::format("[{}{}{}]:{}", text, has_interface ? "%" : "", interface,
                     ntohs(ipv6.sin6_port));
}

FileDescriptor listen_at(const SocketAddress& address, bool again) {
  FileDescriptor socket = stream_socket(address.family());
  if (!socket) return {};
  const int on = again ? 1 : 0;
  if (again) ::setsockopt(socket.fd(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const int off = 0;
  if (address.family() == AF_INET6) {
    ::setsockopt(socket.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  if (::bind(socket.fd(), address.get(), address.length) != 0 ||
      ::listen(socket.fd(), kBacklog) != 0) {
    const int error = errno;
    socket.reset();
    errno = error;
  }
  return socket;
}

SocketAddress bound_address(const FileDescriptor& socket) {
  SocketAddress address;
  address.length = sizeof address.storage;
  ::getsockname(socket.fd(), address.get(), &address.length);
  return address;
}

FileDescriptor accept_from(const FileDescriptor& listener) {
  return FileDescriptor(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

FileDescriptor start_connecting(const SocketAddress& address,
                                const std::function<void(const FileDescriptor&)>& prepare) {
  FileDescriptor socket = stream_socket(address.family());
  if (!socket) return {};
  if (prepare) prepare(socket);
  // A signal does not undo a connection that has begun; it goes on in the background.
  if (::connect(socket.fd(), address.get(), address.length) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    const int error = errno;
    socket.reset();
    errno = error;
  }
  return socket;
}

int connecting_error(const FileDescriptor& socket) {
  int error = 0;
  socklen_t length = sizeof error;
  return ::getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length) == 0 ? error : errno;
}

FileDescriptor connect_to(const SocketAddress& address, Deadline deadline) {
  FileDescriptor socket = start_connecting(address);
  if (!socket) return {};
  const int error = wait_for(socket.fd(), POLLOUT, deadline) ? connecting_error(socket) : ETIMEDOUT;
  if (error != 0) {
    socket.reset();
    errno = error;
  }
  return socket;
}

IoResult read_exactly(const FileDescriptor& socket, std::span<std::byte> bytes, Deadline deadline) {
  return move_exactly(socket, bytes.size(), POLLIN, deadline,
                      [&](std::size_t offset, std::size_t count) {
                        return ::recv(socket.fd(), bytes.data() + offset, count, 0);
                      });
}

IoResult write_exactly(const FileDescriptor& socket, std::span<const std::byte> bytes,
                       Deadline deadline) {
  return move_exactly(socket, bytes.size(), POLLOUT, deadline,
                      [&](std::size_t offset, std::size_t count) {
                        return ::send(socket.fd(), bytes.data() + offset, count, MSG_NOSIGNAL);
                      });
}

ReadResult read_more(const FileDescriptor& socket, std::span<std::byte> bytes,
                     std::size_t& received) {
  while (received < bytes.size()) {
    const ssize_t got = ::recv(socket.fd(), bytes.data() + received, bytes.size() - received, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return ReadResult::more;
    if (got <= 0) return ReadResult::closed;
    received += static_cast<std::size_t>(got);
  }
  return ReadResult::whole;
}

namespace {

std::optional<ucred> peer(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0)
    return std::nullopt;
  return credentials;
}

}  // namespace

std::int64_t peer_user(const FileDescriptor& socket) {
  const auto credentials = peer(socket.fd());
  return credentials ? std::int64_t{credentials->uid} : -1;
}

std::uint32_t own_user() { return static_cast<std::uint32_t>(::syscall(SYS_geteuid)); }

pid_t peer_process(int socket) {
  const auto credentials = peer(socket);
  return credentials ? credentials->pid : 0;
}

}  // namespace tutti
