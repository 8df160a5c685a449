// The addresses of this host, and the one rule that chooses among them: towards a peer that is
// known, for peers of which nothing is known yet, and for ranks of this host alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/sockets/socket.h"

namespace tutti {

/// An address of this host, on an interface that is up.
struct NetworkInterface {
  std::string name;
  SocketAddress address;
  std::uint32_t megabits = 0;  // its speed; 0: not known
  std::uint32_t prefix = 0;    // bits of the address that its network has in common
  // It leads no further than this host, as lo does, and a bridge of containers: many hosts have the
  // same address there.
  bool inside = false;
  bool loopback = false;  // the address
  bool carrier = true;    // something is connected to the interface
};

/// A host's addresses and routes. Tests make some up.
struct OwnAddresses {
  std::function<std::vector<NetworkInterface>()> interfaces;
  /// The source address, with port 0, of what goes from here to another address; nothing, with
  /// errno: there is no way to it.
  std::function<std::optional<SocketAddress>(const SocketAddress& to)> source;

  /// The address at which `peer`, and those that reach `peer`, reach this host: the source of what
  /// goes to `peer`. `names`, in the form of TUTTI_SOCKET_IFNAME, may exclude that; then one of the
  /// interfaces that it names, preferably of the same family. Throws Error(invalid_argument) where
  /// it names none, Error(system) where there is no way to `peer`.
  SocketAddress towards(const SocketAddress& peer, const std::string& names) const;

  /// All addresses at which others may reach this host, the best one first: the sources of what
  /// goes to the addresses `reached` (those of a job's launcher, or of its store), then those of
  /// the default routes, then all others. Interfaces that lead nowhere come last, loopback
  /// addresses after them; a loopback address among `reached` says nothing. Only those of the
  /// interfaces `names`, unless it is empty. Throws Error(invalid_argument) where it names none,
  /// Error(system) where the host has no address.
  std::vector<SocketAddress> for_others(std::span<const SocketAddress> reached,
                                        const std::string& names) const;

  /// One at which the ranks of this host reach each other: 127.0.0.1, if the host has it. Throws
  /// Error(system).
  SocketAddress for_this_host() const;

  /// The interface that has `address`; "": none has.
  std::string interface_of(const SocketAddress& address) const;
};

/// The addresses of this host, as they are at each call.
const OwnAddresses& own_addresses();

/// This host's for these (OwnAddresses).
SocketAddress own_address(const SocketAddress& towards, const std::string& names);
SocketAddress address_for_this_host();
std::string interface_of(const SocketAddress& address);

/// Of interfaces that are up; those with a carrier first. Throws Error(system).
std::vector<NetworkInterface> network_interfaces();
/// The host's addresses, for people: "10.0.0.1 (eth0), 127.0.0.1 (lo)".
std::string own_addresses_text();
/// For people: ", 10 Gbit/s", "".
std::string speed_text(const NetworkInterface& interface);
/// Whether `list`, in the form of TUTTI_SOCKET_IFNAME, names `interface`.
bool names_interface(std::string_view list, std::string_view interface);

/// Whether lo is down. Then the kernel carries nothing from this host to itself, whatever the
/// address.
bool is_loopback_down();

/// An address that another host has said, as this host reaches it. To a link-local address of IPv6
/// belongs an interface, which is each host's own: the one of TUTTI_SOCKET_IFNAME, or else one that
/// leads somewhere.
SocketAddress as_reached_from_here(const SocketAddress& address);

}  // namespace tutti
