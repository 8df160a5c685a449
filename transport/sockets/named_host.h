// Hosts by name, as launchers and users write them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/wait.h"
#include "transport/sockets/socket.h"

namespace tutti {

/// The addresses of a host, at `port`: of a name, which this host's resolver knows, or of an IPv4
/// or IPv6 literal. Throws Error(system).
std::vector<SocketAddress> addresses_of(const std::string& host, std::uint16_t port);

/// A connection to one of them. Tries again until the deadline, as the host's server may still be
/// about to start. Throws Error(timed_out), which says how the last attempt failed.
FileDescriptor connect_to_host(const std::string& host, std::uint16_t port, Deadline deadline);

}  // namespace tutti
