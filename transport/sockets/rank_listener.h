// How ranks listen for ranks of other hosts: at an address of this host that others can connect to,
// and at a port that a firewall lets through (TUTTI_PORTS).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "transport/sockets/socket.h"

namespace tutti {

/// All of `text` as the number of a port, from 1 to 65535.
std::optional<std::uint16_t> port_from(std::string_view text);

/// The ports of TUTTI_PORTS; 0 to 0: any. Throws Error(invalid_argument).
struct PortRange {
  std::uint16_t first = 0, last = 0;
};
PortRange port_range();

/// Listens at `address`, at a port of TUTTI_PORTS. An empty socket, with errno, where the system
/// refuses; EADDRINUSE: all those ports are in use.
FileDescriptor listen_for_ranks(const SocketAddress& address);
/// For messages, behind the address: " at a port of TUTTI_PORTS=20000-20100", or "".
std::string at_which_ports();

/// The address that `text` (TUTTI_ADDRESS) names, with port 0. Throws Error(invalid_argument) where
/// it is none, or none that others can connect to.
SocketAddress listening_address(const std::string& text);

}  // namespace tutti
