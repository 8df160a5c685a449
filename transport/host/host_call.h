// Whether a rank of this host can be called: a look at its listener (host_peers_calls.cpp).
#pragma once

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstdint>

#include "transport/host/host_peers.h"

namespace tutti {

/// Whether nothing listens at the socket with this name: its rank has died, or has given up.
inline bool refuses_calls(const std::array<std::uint64_t, 2>& name) {
  const FileDescriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const SocketAddress address = socket_address(name);
  return socket && ::connect(socket.fd(), address.get(), address.length) != 0 &&
         errno == ECONNREFUSED;
}

}  // namespace tutti
