// Where ranks of several hosts meet, by what this process knows of the other hosts.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "bootstrap/unique_id.h"
#include "transport/sockets/socket.h"

namespace tutti {

/// The addresses at which other hosts may reach this one, the best one first
/// (OwnAddresses::for_others()). After `reached` count the addresses of the job's launcher
/// (TUTTI_UNIQUE_ID) and of MASTER_ADDR.
std::vector<SocketAddress> addresses_for_others(std::span<const SocketAddress> reached,
                                                const std::string& interfaces);

/// MeetingPlace::among_hosts() for callers that know more: hosts of the job have been reached, or
/// are to be reached, at the addresses `reached`; and `interfaces` go before TUTTI_SOCKET_IFNAME,
/// in its form. Throws Error.
MeetingPlace place_among_hosts(std::span<const SocketAddress> reached,
                               const std::string& interfaces);

}  // namespace tutti
