#include "transport/sockets/tcp_socket.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/host.h"
#include "core/settings.h"

namespace tutti {
namespace {

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
  if (a.family() != b.family()) return false;
  if (a.family() == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(&a.storage)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(&b.storage)->sin_addr.s_addr;
  }
  return std::memcmp(&reinterpret_cast<const sockaddr_in6*>(&a.storage)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(&b.storage)->sin6_addr,
                     sizeof(in6_addr)) == 0;
}

/// Those of IPv6, which say nothing without their interface.
bool is_link_local(const SocketAddress& a) {
  return a.family() == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(&a.storage)->sin6_addr);
}

/// An address of this host on an interface that is up.
struct OwnAddress {
  std::string name;
  SocketAddress address;
  bool carrier;
  std::uint32_t prefix;  // bits of its network's mask
};

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

/// First those of interfaces with a carrier.
std::vector<OwnAddress> own_addresses() {
  std::vector<OwnAddress> all;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) throw_system_error("cannot list this host's network interfaces");
  for (const ifaddrs* i = list; i != nullptr; i = i->ifa_next) {
    if (is_internet(i->ifa_addr) && (i->ifa_flags & IFF_UP) != 0) {
      all.push_back({i->ifa_name, address_of(i->ifa_addr), (i->ifa_flags & IFF_RUNNING) != 0,
                     prefix_of(i->ifa_netmask)});
    }
  }
  freeifaddrs(list);
  std::ranges::stable_partition(all, &OwnAddress::carrier);
  return all;
}

/// TCP sends data without an acknowledgement again after 0.2 s, and then each time after twice as
/// long. From now on it does so after a second at most, so that a connection goes on soon after an
/// outage. False: this kernel (before 6.15) cannot do so.
bool asks_every_second(int fd) {
  constexpr int kRtoMaxMs = 44;  // TCP_RTO_MAX_MS, which headers may not have yet
  constexpr int kSecond = 1000;
  return ::setsockopt(fd, IPPROTO_TCP, kRtoMaxMs, &kSecond, sizeof kSecond) == 0;
}

}  // namespace

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

SocketAddress own_address(const SocketAddress& towards, const std::string& interfaces) {
  if (!interfaces.empty()) {
    std::set<std::string> there;
    // Of the family that the ranks meet in, if the interface has such an address.
    std::optional<SocketAddress> other;
    for (const auto& [name, address, carrier, prefix] : own_addresses()) {
      there.insert(name);
      if (!names_interface(interfaces, name)) continue;
      if (is_link_local(address)) continue;
      if (address.family() == towards.family()) return address;
      if (!other) other = address;
    }
    if (other) return *other;
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format(
            "\"{}\" (TUTTI_SOCKET_IFNAME, or NCCL_SOCKET_IFNAME) names no interface that is "
            "up and has an address; there are: {}",
            interfaces, fmt::join(there, ", ")));
  }
  // A datagram socket that is connected sends nothing, but has the address that the route says.
  const FileDescriptor probe(::socket(towards.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe || ::connect(probe.fd(), towards.get(), towards.length) != 0) {
    throw_system_error(fmt::format("there is no way from this host to {}", to_string(towards)));
  }
  return with_port(bound_address(probe), 0);
}

SocketAddress address_for_others() {
  // Any address far away; nothing is sent there. Documentation prefixes of RFC 5737 and RFC 3849.
  for (const char* const far : {"192.0.2.1", "2001:db8::1"}) {
    try {
      return own_address(*parse_address(far, 9), setting_text("TUTTI_SOCKET_IFNAME"));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::system) throw;
    }
  }
  for (const auto& [name, address, carrier, prefix] : own_addresses()) {
    if (!is_loopback(address) && !is_link_local(address)) return address;
  }
  return *parse_address("127.0.0.1", 0);
}

std::string interface_of(const SocketAddress& address) {
  for (const OwnAddress& own : own_addresses()) {
    if (same_address(address, own.address)) return own.name;
  }
  return "";
}

std::vector<NetworkInterface> network_interfaces() {
  std::vector<NetworkInterface> all;
  for (const auto& [name, address, carrier, prefix] : own_addresses()) {
    NetworkInterface i;
    i.name = name;
    i.address = address;
    i.loopback = is_loopback(address);
    i.carrier = carrier;
    i.prefix = prefix;
    int megabits = 0;
    std::ifstream(fmt::format("/sys/class/net/{}/speed", name)) >> megabits;
    if (megabits > 0) i.megabits = static_cast<std::uint32_t>(megabits);
    i.bridge = ::access(fmt::format("/sys/class/net/{}/bridge", name).c_str(), F_OK) == 0;
    all.push_back(std::move(i));
  }
  return all;
}

std::string speed_text(const NetworkInterface& interface) {
  return interface.megabits == 0 ? "" : fmt::format(", {} Gbit/s", interface.megabits / 1000.0);
}

std::string own_addresses_text() {
  std::string text;
  for (const OwnAddress& own : own_addresses()) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", host_text(own.address), own.name);
  }
  return text;
}

void check_congestion_control() {
  const std::string wish = setting_text("TUTTI_TCP_CONGESTION");
  if (wish.empty() || wish == "system") return;
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket || ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, wish.data(),
                              static_cast<socklen_t>(wish.size())) == 0) {
    return;
  }
  const bool forbidden = errno == EPERM;
  const std::string names = first_line(fmt::format("/proc/sys/net/ipv4/tcp_{}_congestion_control",
                                                   forbidden ? "allowed" : "available"));
  throw Error(ErrorCode::invalid_argument,
              fmt::format("TUTTI_TCP_CONGESTION={}: {}: {}", wish,
                          forbidden ? "this process may not choose it; it may choose"
                                    : "the kernel of this host has no such congestion control; "
                                      "it has",
                          names));
}

std::string congestion_control_in_use() {
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  tune_socket(socket);
  std::array<char, 32> name{};
  socklen_t length = name.size() - 1;
  ::getsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name.data(), &length);
  return name.data();
}

void tune_socket(const FileDescriptor& socket) {
  const int on = 1;
  ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  asks_every_second(socket.fd());
  const std::string wish = setting_text("TUTTI_TCP_CONGESTION");
  const auto use = [&](std::string_view name) {
    return ::setsockopt(socket.fd(), IPPROTO_TCP, TCP_CONGESTION, name.data(),
                        static_cast<socklen_t>(name.size())) == 0;
  };
  if (wish == "system") return;
  if (!wish.empty()) {
    use(wish);
  } else if (!use("cubic")) {  // which only a host's first network namespace may choose
    use("reno");
  }
}

std::chrono::milliseconds silence_limit() {
  using namespace std::chrono;
  const auto outage = duration_cast<milliseconds>(setting_seconds("TUTTI_PEER_TIMEOUT"));
  if (outage.count() == 0) return outage;
  static const bool often =
      asks_every_second(FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)).fd());
  // The last answer may be a second old when the outage begins, and the next question comes a
  // second after its end, or after as long again as it has lasted.
  return outage + (often ? 0s : outage) + 2s;
}

void watch_over(int fd) {
  using namespace std::chrono;
  const auto limit = silence_limit();
  if (limit.count() == 0) return;
  const auto set = [&](int level, int option, int value) {
    ::setsockopt(fd, level, option, &value, sizeof value);
  };
  // An idle connection asks every second. It gives up when it is to ask again after the limit (on
  // kernels that do not go by that, after as many questions); one with something under way gives up
  // at the limit.
  const auto probes = std::max<std::int64_t>(1, limit.count() / 1000);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, static_cast<int>(std::min<std::int64_t>(probes, 120)));
  set(IPPROTO_TCP, TCP_USER_TIMEOUT,
      static_cast<int>(std::min<std::int64_t>(limit.count(), INT32_MAX)));
}

void stop_watching_over(int fd) {
  const int off = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &off, sizeof off);
  watch_over_idle(fd);
}

void watch_over_idle(int fd) {
  const int off = 0;
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &off, sizeof off);
}

void acknowledge(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
}

bool has_hung_up(int fd) {
  pollfd socket{fd, POLLRDHUP, 0};
  return ::poll(&socket, 1, 0) > 0;
}

bool has_ended(int fd) {
  char next = 0;
  const ssize_t got = ::recv(fd, &next, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

bool has_delivered(int fd) {
  int unsent = 0;
  return ::ioctl(fd, SIOCOUTQ, &unsent) != 0 || unsent == 0 || has_hung_up(fd);
}

FileDescriptor begin_to_connect(const SocketAddress& address, const SocketAddress& from) {
  return start_connecting(address, [&](const FileDescriptor& socket) {
    tune_socket(socket);
    watch_over(socket.fd());
    if (from.family() != address.family()) return;
    // So that what the others see is the interface that was chosen; if that fails, any will do.
    const int on = 1;
    ::setsockopt(socket.fd(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    const SocketAddress local = with_port(from, 0);
    [[maybe_unused]] const int bound = ::bind(socket.fd(), local.get(), local.length);
  });
}

}  // namespace tutti
