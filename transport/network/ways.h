// The further ways between two hosts, over which stripes of long messages travel
// (tcp/tcp_endpoint.h): pairs of their addresses in the same network, other than the pair by which
// they meet. A rank says at which further addresses it listens; two ranks choose by the same rule,
// from what both know.
//
// By default a rank offers addresses of interfaces that are as fast as the first one, because every
// way carries as much as any other. It offers none of bridges: those of containers have the same
// addresses on all hosts. TUTTI_TCP_STREAMS may ask for more, or for one connection.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "transport/network/endpoint.h"
#include "transport/sockets/own_addresses.h"
#include "transport/sockets/socket.h"

namespace tutti {

/// A further address, as other hosts see it.
struct FurtherAddress {
  std::array<std::byte, 16> ip{};
  std::uint16_t port = 0;    // 0: there is none
  std::uint8_t is_ipv6 = 0;  // else the first 4 bytes count
  std::uint8_t prefix = 0;   // bits that its network has in common
};

/// What a rank says of its further ways; plain bytes.
struct FurtherWays {
  std::array<FurtherAddress, Endpoint::kMostStripes> addresses{};
  std::uint32_t wanted =
      0;  // connections for long messages (TUTTI_TCP_STREAMS); 0: one for each way
};

/// A way from this rank to another one.
struct Way {
  SocketAddress to, from;
};

/// The interfaces of this host that are further ways, without the one with address `local`;
/// `interfaces`: those that may be used, in the form of TUTTI_SOCKET_IFNAME, or empty.
std::vector<NetworkInterface> further_interfaces(const SocketAddress& local,
                                                 const std::string& interfaces);

/// As it is said to others, where `listener` listens at an address in a network of `prefix` bits.
FurtherAddress further_address(const SocketAddress& listener, std::uint32_t prefix);

/// The ways of the stripes from a rank that says `mine` to one that says `theirs`. `own` and
/// `first` are the first addresses of the two. Nothing that the other one says does harm.
std::vector<Way> further_ways(const FurtherWays& mine, const SocketAddress& own,
                              const FurtherWays& theirs, const SocketAddress& first);

}  // namespace tutti
