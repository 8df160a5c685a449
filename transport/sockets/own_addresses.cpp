// See own_addresses.h.
#include "transport/sockets/own_addresses.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <set>
#include <system_error>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "core/host.h"
#include "core/number.h"
#include "core/settings.h"

namespace tutti {
namespace {

/// Any addresses far away, to which the default routes lead; nothing is sent there. From the
/// documentation prefixes of RFC 5737 and RFC 3849.
constexpr std::array kFarAway{"192.0.2.1", "2001:db8::1"};

bool is_internet(const sockaddr* address) {
  return address != nullptr && (address->sa_family == AF_INET || address->sa_family == AF_INET6);
}

SocketAddress address_of(const sockaddr* from) {
  SocketAddress address;
  address.length = from->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&address.storage, from, address.length);
  return address;
}

bool same_address(const SocketAddress& a, const SocketAddress& b) {
  return a.family() == b.family() && host_text(a) == host_text(b);
}

std::uint32_t prefix_of(const sockaddr* mask) {
  if (!is_internet(mask)) return 0;
  const auto* const bytes = mask->sa_family == AF_INET
                                ? reinterpret_cast<const std::uint8_t*>(
                                      &reinterpret_cast<const sockaddr_in*>(mask)->sin_addr)
                                : reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr.s6_addr;
  std::uint32_t bits = 0;
  for (int i = 0; i < (mask->sa_family == AF_INET ? 4 : 16); ++i) bits += std::popcount(bytes[i]);
  return bits;
}

/// 169.254.x.y, which an interface gives itself where nobody has given it another one.
bool is_self_assigned(const SocketAddress& a) {
  if (a.family() != AF_INET) return false;
  sockaddr_in ipv4{};
  std::memcpy(&ipv4, &a.storage, sizeof ipv4);
  return (ntohl(ipv4.sin_addr.s_addr) >> 16) == 0xa9fe;
}

/// Whether `name` is a bridge that joins no network beyond this host: its ports, if it has any, are
/// those of containers and guests. The others have a device, or another interface below them, as
/// those of bonds and VLANs have. Or it is a port itself.
bool belongs_to_containers(const std::string& name) {
  namespace fs = std::filesystem;
  const fs::path all = "/sys/class/net";
  std::error_code none;
  if (fs::exists(all / name / "brport", none)) return true;
  if (!fs::exists(all / name / "bridge", none)) return false;
  for (fs::directory_iterator port(all / name / "brif", none), end; !none && port != end;
       port.increment(none)) {
    const fs::path of_port = all / port->path().filename();
    if (fs::exists(of_port / "device", none)) return false;
    for (fs::directory_iterator entry(of_port, none); !none && entry != end;
         entry.increment(none)) {
      if (entry->path().filename().string().starts_with("lower_")) return false;
    }
  }
  return true;
}

/// The less, the better others reach it.
auto rank_for_others(const NetworkInterface& i) {
  return std::tuple(i.loopback, i.inside, !i.carrier, is_self_assigned(i.address));
}

[[noreturn]] void refuse_names(const std::string& names,
                               const std::vector<NetworkInterface>& interfaces) {
  std::set<std::string> there;
  for (const NetworkInterface& i : interfaces) there.insert(i.name);
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("\"{}\" (TUTTI_SOCKET_IFNAME, or NCCL_SOCKET_IFNAME) names no interface that is "
                  "up and has an address; there are: {}",
                  names, fmt::join(there, ", ")));
}

/// A datagram socket that is connected sends nothing, but has the address that the route says.
std::optional<SocketAddress> source_by_routes(const SocketAddress& to) {
  const FileDescriptor probe(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const SocketAddress with_any_port = with_port(to, 9);
  if (!probe || ::connect(probe.fd(), with_any_port.get(), with_any_port.length) != 0) {
    return std::nullopt;
  }
  return with_port(bound_address(probe), 0);
}

}  // namespace

SocketAddress OwnAddresses::towards(const SocketAddress& peer, const std::string& names) const {
  const auto own = source(peer);
  if (own && (names.empty() || names_interface(names, interface_of(*own)))) return *own;
  if (names.empty()) {
    throw_system_error(fmt::format("there is no way from this host to {}", to_string(peer)));
  }
  std::vector<NetworkInterface> named = interfaces();
  std::erase_if(named, [&](const NetworkInterface& i) {
    return !names_interface(names, i.name) || (is_link_local(i.address) && !is_link_local(peer));
  });
  if (named.empty()) refuse_names(names, interfaces());
  // Of the family that the ranks meet in, if the interface has such an address.
  return std::ranges::min_element(named, {},
                                  [&](const NetworkInterface& i) {
                                    return std::tuple(i.loopback,
                                                      i.address.family() != peer.family(),
                                                      rank_for_others(i));
                                  })
      ->address;
}

std::vector<SocketAddress> OwnAddresses::for_others(std::span<const SocketAddress> reached,
                                                    const std::string& names) const {
  const std::vector<NetworkInterface> all = interfaces();
  std::vector<SocketAddress> result;
  const auto add = [&](const NetworkInterface& i) {
    const auto is_same = [&](const SocketAddress& other) { return same_address(i.address, other); };
    if (std::ranges::none_of(result, is_same)) result.push_back(i.address);
  };
  const auto may_use = [&](const NetworkInterface& i) {
    return names.empty() || names_interface(names, i.name);
  };
  const auto add_sources = [&](std::span<const SocketAddress> peers) {
    std::vector<NetworkInterface> sources;
    for (const SocketAddress& peer : peers) {
      if (is_loopback(peer)) continue;
      const auto own = source(peer);
      if (!own || is_loopback(*own) || (is_link_local(*own) && !is_link_local(peer))) continue;
      const auto found = std::ranges::find_if(
          all, [&](const NetworkInterface& i) { return same_address(i.address, *own); });
      if (found != all.end() && may_use(*found)) sources.push_back(*found);
    }
    // One name of a host may stand for all of its addresses.
    std::ranges::stable_sort(sources, {}, [](const NetworkInterface& i) {
      return std::tuple(is_link_local(i.address), i.inside);
    });
    std::ranges::for_each(sources, add);
  };
  add_sources(reached);
  std::vector<SocketAddress> far;
  for (const char* const text : kFarAway) far.push_back(*parse_address(text, 0));
  add_sources(far);
  std::vector<NetworkInterface> others;
  std::ranges::copy_if(all, std::back_inserter(others), [&](const NetworkInterface& i) {
    return may_use(i) && !is_link_local(i.address);
  });
  std::ranges::stable_sort(others, {}, rank_for_others);
  std::ranges::for_each(others, add);
  if (result.empty() && !names.empty()) refuse_names(names, all);
  if (result.empty()) {
    throw Error(ErrorCode::system, "no interface of this host is up and has an address");
  }
  return result;
}

SocketAddress OwnAddresses::for_this_host() const {
  for (const char* const text : {"127.0.0.1", "::1"}) {
    const SocketAddress loopback = *parse_address(text, 0);
    // A host without this one may send what goes there by its default route.
    const auto own = source(loopback);
    if (own && is_loopback(*own)) return loopback;
  }
  return for_others({}, "").front();
}

std::string OwnAddresses::interface_of(const SocketAddress& address) const {
  for (const NetworkInterface& i : interfaces()) {
    if (same_address(address, i.address)) return i.name;
  }
  return "";
}

const OwnAddresses& own_addresses() {
  static const OwnAddresses own{network_interfaces, source_by_routes};
  return own;
}

SocketAddress own_address(const SocketAddress& towards, const std::string& names) {
  return own_addresses().towards(towards, names);
}

SocketAddress address_for_this_host() { return own_addresses().for_this_host(); }

std::string interface_of(const SocketAddress& address) {
  return own_addresses().interface_of(address);
}

std::vector<NetworkInterface> network_interfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw_system_error("cannot list this host's network interfaces");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owned(list, ::freeifaddrs);
  std::vector<NetworkInterface> all;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (!is_internet(entry->ifa_addr) || (entry->ifa_flags & IFF_UP) == 0) continue;
    NetworkInterface i;
    i.name = entry->ifa_name;
    i.address = address_of(entry->ifa_addr);
    i.loopback = is_loopback(i.address);
    i.carrier = (entry->ifa_flags & IFF_RUNNING) != 0;
    i.prefix = prefix_of(entry->ifa_netmask);
    const auto speed =
        parse_number<std::int64_t>(first_line(fmt::format("/sys/class/net/{}/speed", i.name)));
    if (speed && *speed > 0) i.megabits = static_cast<std::uint32_t>(*speed);
    i.inside = (entry->ifa_flags & IFF_LOOPBACK) != 0 || belongs_to_containers(i.name);
    all.push_back(std::move(i));
  }
  std::ranges::stable_partition(all, &NetworkInterface::carrier);
  return all;
}

std::string own_addresses_text() {
  std::string text;
  for (const NetworkInterface& own : network_interfaces()) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", host_text(own.address), own.name);
  }
  return text;
}

std::string speed_text(const NetworkInterface& interface) {
  return interface.megabits == 0 ? "" : fmt::format(", {} Gbit/s", interface.megabits / 1000.0);
}

bool names_interface(std::string_view list, std::string_view interface) {
  const bool excluding = list.starts_with('^');
  if (excluding) list.remove_prefix(1);
  bool named = false;
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(','), list.size());
    std::string_view entry = list.substr(0, end);
    list.remove_prefix(std::min(end + 1, list.size()));
    const bool exact = entry.starts_with('=');
    if (exact) entry.remove_prefix(1);
    named = named || (exact ? interface == entry : !entry.empty() && interface.starts_with(entry));
  }
  return named != excluding;
}

bool is_loopback_down() {
  const FileDescriptor any(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::memcpy(request.ifr_name, "lo", 3);
  return any && ::ioctl(any.fd(), SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & IFF_UP) == 0;
}

SocketAddress as_reached_from_here(const SocketAddress& address) {
  if (!is_link_local(address)) return address;
  const auto numbered = [&](std::uint32_t interface) {
    SocketAddress result = address;
    reinterpret_cast<sockaddr_in6*>(&result.storage)->sin6_scope_id = interface;
    return result;
  };
  const std::string names = setting_text("TUTTI_SOCKET_IFNAME");
  std::optional<NetworkInterface> best;
  for (const NetworkInterface& i : network_interfaces()) {
    if (!is_link_local(i.address)) continue;
    const std::uint32_t number =
        reinterpret_cast<const sockaddr_in6*>(&i.address.storage)->sin6_scope_id;
    if (same_address(numbered(number), i.address)) return numbered(number);  // this host's own
    if (!names.empty() && !names_interface(names, i.name)) continue;
    if (!best || rank_for_others(i) < rank_for_others(*best)) best = i;
  }
  return numbered(
      best ? reinterpret_cast<const sockaddr_in6*>(&best->address.storage)->sin6_scope_id : 0);
}

}  // namespace tutti
