// See ways.h.
#include "transport/network/ways.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "core/settings.h"

namespace tutti {
namespace {

std::span<const std::byte> ip_of(const SocketAddress& address) {
  const auto* const storage = reinterpret_cast<const std::byte*>(&address.storage);
  return address.family() == AF_INET6
             ? std::span(storage + offsetof(sockaddr_in6, sin6_addr), sizeof(in6_addr))
             : std::span(storage + offsetof(sockaddr_in, sin_addr), sizeof(in_addr));
}

std::size_t bytes_of_ip(const FurtherAddress& a) { return a.is_ipv6 != 0 ? 16 : 4; }

std::optional<SocketAddress> address_of(const FurtherAddress& a) {
  if (a.port == 0) return std::nullopt;
  auto address = parse_address(a.is_ipv6 != 0 ? "::" : "0.0.0.0", a.port);
  auto* const storage = reinterpret_cast<std::byte*>(&address->storage);
  std::memcpy(storage + (a.is_ipv6 != 0 ? offsetof(sockaddr_in6, sin6_addr)
                                        : offsetof(sockaddr_in, sin_addr)),
              a.ip.data(), bytes_of_ip(a));
  return is_of_one_host(*address) && !is_loopback(*address) ? address : std::nullopt;
}

bool is_same(const FurtherAddress& a, const FurtherAddress& b) {
  return a.is_ipv6 == b.is_ipv6 && std::memcmp(a.ip.data(), b.ip.data(), bytes_of_ip(a)) == 0;
}

/// Whether they are in one network, and two addresses.
bool meet(const FurtherAddress& a, const FurtherAddress& b) {
  if (a.is_ipv6 != b.is_ipv6 || a.prefix != b.prefix || a.prefix == 0 || is_same(a, b))
    return false;
  for (std::size_t bit = 0; bit < std::min<std::size_t>(a.prefix, 8 * bytes_of_ip(a)); ++bit) {
    const auto differs = a.ip[bit / 8] ^ b.ip[bit / 8];
    if ((differs & (std::byte{0x80} >> (bit % 8))) != std::byte{0}) return false;
  }
  return true;
}

}  // namespace

std::vector<NetworkInterface> further_interfaces(const SocketAddress& local,
                                                 const std::string& interfaces) {
  const auto wanted = setting_integer("TUTTI_TCP_STREAMS");
  std::vector<NetworkInterface> further;
  if (wanted == 1 || is_loopback(local)) return further;
  const std::vector<NetworkInterface> all = network_interfaces();
  const std::string first_name = interface_of(local);
  const auto first = std::ranges::find(all, first_name, &NetworkInterface::name);
  if (first == all.end()) return further;
  std::set<std::string> seen{first_name};  // an interface is one way, however many addresses it has
  for (const NetworkInterface& i : all) {
    if (i.loopback || !i.carrier || i.address.family() != local.family() ||
        !is_of_one_host(i.address) || is_link_local(i.address) || i.prefix == 0) {
      continue;
    }
    if (!interfaces.empty() && !names_interface(interfaces, i.name)) continue;
    const bool alike = !i.inside && i.megabits > 0 && i.megabits == first->megabits;
    if ((wanted == 0 && !alike) || further.size() == Endpoint::kMostStripes) continue;
    if (seen.insert(i.name).second) further.push_back(i);
  }
  return further;
}

FurtherAddress further_address(const SocketAddress& listener, std::uint32_t prefix) {
  FurtherAddress a;
  const auto ip = ip_of(listener);
  std::ranges::copy(ip, a.ip.begin());
  a.is_ipv6 = ip.size() == a.ip.size() ? 1 : 0;
  const auto* const storage = &listener.storage;
  a.port = ntohs(a.is_ipv6 != 0 ? reinterpret_cast<const sockaddr_in6*>(storage)->sin6_port
                                : reinterpret_cast<const sockaddr_in*>(storage)->sin_port);
  a.prefix = static_cast<std::uint8_t>(prefix);
  return a;
}

std::vector<Way> further_ways(const FurtherWays& mine, const SocketAddress& own,
                              const FurtherWays& theirs, const SocketAddress& first) {
  std::vector<Way> ways;
  if (mine.wanted == 1 || theirs.wanted == 1) return ways;
  std::set<std::size_t> used;
  for (const FurtherAddress& from : mine.addresses) {
    if (from.port == 0) continue;
    for (std::size_t t = 0; t < theirs.addresses.size(); ++t) {
      const FurtherAddress& to = theirs.addresses[t];
      const bool is_own = std::ranges::any_of(
          mine.addresses, [&](const FurtherAddress& a) { return a.port != 0 && is_same(a, to); });
      if (to.port == 0 || used.contains(t) || is_own || !meet(from, to)) continue;
      const auto there = address_of(to), here = address_of(from);
      if (!there || !here) continue;
      used.insert(t);
      ways.push_back({*there, *here});
      break;
    }
  }
  // As many as both want; where there are fewer ways, several connections take one.
  const auto least = [](std::uint32_t a, std::uint32_t b) {
    return a == 0 ? b : b == 0 ? a : std::min(a, b);
  };
  const std::size_t wanted = least(mine.wanted, theirs.wanted);
  if (wanted == 0) return ways;
  const std::size_t stripes = std::min(wanted - 1, Endpoint::kMostStripes);
  if (ways.size() > stripes) ways.resize(stripes);
  const std::size_t distinct = ways.size() + 1;
  while (ways.size() < stripes) {
    const std::size_t way = (ways.size() + 1) % distinct;
    ways.push_back(way == 0 ? Way{first, own} : ways[way - 1]);
  }
  return ways;
}

}  // namespace tutti
