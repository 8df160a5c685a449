// See doctor_way.h. A process that speaks to a doctor proves first that it is a doctor, too
// (handshake.h). The proof takes no secret; it keeps other programs apart. All later messages have
// fixed lengths. The host that was called connects only to the host that has called it.
#include "tools/doctor/doctor_way.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "bootstrap/meeting_place.h"
#include "bootstrap/rendezvous_protocol.h"
#include "core/error.h"
#include "core/settings.h"
#include "tools/doctor/doctor_network.h"
#include "transport/sockets/introduction.h"
#include "transport/sockets/named_host.h"
#include "transport/sockets/own_addresses.h"
#include "transport/sockets/rank_listener.h"
#include "transport/sockets/socket.h"
#include "transport/sockets/tcp_socket.h"
#include "transport/sockets/waiting_room.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::uint16_t kUsualPort = 47470;
constexpr auto kToConnect = 5s;
constexpr auto kToCarry = 10s;
constexpr std::size_t kBulk = std::size_t{1} << 20;

/// The host that calls says where it listens.
struct Ask {
  protocol::Endpoint back;
};
/// What has come of the way back.
struct WayVerdict {
  std::int32_t error = 0;  // an errno, or one of these:
  static constexpr std::int32_t kOtherAddress = -1, kStranger = -2;
  std::int32_t microseconds = 0;
  protocol::Endpoint seen;  // where the host that calls comes from
  protocol::Endpoint unused;
};

protocol::Bytes32 password() { return protocol::hash({}, "tutti doctor", {}); }

std::uint16_t usual_port() {
  const PortRange range = port_range();
  return range.first != 0 ? range.first : kUsualPort;
}

std::string milliseconds(Clock::duration time) {
  return fmt::format("{:.2f} ms", std::chrono::duration<double, std::milli>(time).count());
}

bool same_host(const SocketAddress& a, const SocketAddress& b) {
  return host_text(a) == host_text(b);
}

/// "HOST:PORT", where a port may be left out, and an IPv6 address with one is in brackets.
SocketAddress resolve(const std::string& text) {
  std::string_view host = text, port;
  if (host.starts_with('[')) {
    const std::size_t end = std::min(host.find(']'), host.size());
    if (host.substr(end).starts_with("]:")) port = host.substr(end + 2);
    host = host.substr(1, end - 1);
  } else if (std::ranges::count(host, ':') == 1) {
    port = host.substr(host.find(':') + 1);
    host = host.substr(0, host.find(':'));
  }
  const std::optional<std::uint16_t> number = port.empty() ? usual_port() : port_from(port);
  if (host.empty() || !number)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("--to {}: expected HOST or HOST:PORT, such as node2:20000", text));
  try {
    return addresses_of(std::string(host), *number).at(0);
  } catch (const std::exception& error) {
    throw Error(ErrorCode::system, fmt::format("--to {}: {}", text, error.what()));
  }
}

// --- Connecting ----------------------------------------------------------------------------------

struct Connected {
  FileDescriptor socket;
  int error = 0;  // as WayVerdict::error
  Clock::duration took{};
};

Connected connect_as_doctor(const SocketAddress& address, const SocketAddress& from) {
  const auto begun = Clock::now();
  Introduction attempt(begin_to_connect(address, from), password());
  Connected c;
  bool connected = false;
  while (!attempt.ended()) {
    if (!wait_for(attempt.descriptor(), attempt.events(), begun + kToConnect)) {
      c.error = connected ? WayVerdict::kStranger : ETIMEDOUT;
      return c;
    }
    attempt.step();
    if (!connected && attempt.state() != Introduction::State::connecting) {
      connected = true;
      c.took = Clock::now() - begun;
    }
  }
  if (attempt.state() == Introduction::State::done) {
    c.socket = std::move(attempt.socket());
  } else {
    const bool reached = attempt.reason() != Introduction::Reason::unreachable;
    c.error = reached ? WayVerdict::kStranger : attempt.error();
  }
  return c;
}

/// Lets in a doctor that connects to one of `listeners`, until the deadline, or until there is
/// something at descriptor `other`.
FileDescriptor admit(std::span<const FileDescriptor> listeners, int other, Deadline deadline) {
  const FileDescriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
  constexpr std::uint64_t kListener = WaitingRoom::kPlaces, kOther = kListener + 1;
  for (const FileDescriptor& listener : listeners) {
    watch(epoll, EPOLL_CTL_ADD, listener, kListener, EPOLLIN);
  }
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kOther;
  if (other >= 0) ::epoll_ctl(epoll.fd(), EPOLL_CTL_ADD, other, &event);
  WaitingRoom room("doctor", password());
  for (auto now = Clock::now(); now < deadline; now = Clock::now()) {
    std::array<epoll_event, 16> events;
    const int ready = ::epoll_wait(epoll.fd(), events.data(), static_cast<int>(events.size()),
                                   milliseconds_until(std::min(deadline, room.next_wake(now))));
    now = Clock::now();
    for (int i = 0; i < ready; ++i) {
      const std::uint64_t who = events[static_cast<std::size_t>(i)].data.u64;
      if (who == kOther) return {};
      if (who >= WaitingRoom::kPlaces) continue;
      if (auto admitted = room.read(who, now)) return std::move(admitted->socket);
    }
    room.expire(now);
    for (const FileDescriptor& listener : listeners) room.accept(listener, epoll, now);
  }
  return {};
}

/// Where ranks would let others in: at TUTTI_ADDRESS, or at the address of each family by which
/// others reach this host best.
std::vector<SocketAddress> where_to_wait() {
  const std::string wish = setting_text("TUTTI_ADDRESS");
  if (!wish.empty()) return {listening_address(wish)};
  std::vector<SocketAddress> result;
  for (const SocketAddress& own : addresses_for_others({}, setting_text("TUTTI_SOCKET_IFNAME"))) {
    const auto is_known = [&](const SocketAddress& a) { return a.family() == own.family(); };
    if (result.empty() || (!is_loopback(own) && std::ranges::none_of(result, is_known))) {
      result.push_back(own);
    }
  }
  return result;
}

SocketAddress peer_of(const FileDescriptor& socket) {
  SocketAddress address;
  address.length = sizeof address.storage;
  ::getpeername(socket.fd(), address.get(), &address.length);
  return address;
}

/// What a rank there would need. `of`: the host that could not be connected to.
std::string advice_for(int error, const std::string& of) {
  switch (error) {
    case ECONNREFUSED:
      return fmt::format(
          "nothing listens there, or a firewall of {} refuses: it must let this host connect to "
          "all "
          "ports of the TUTTI_PORTS there",
          of);
    case ETIMEDOUT:
      return fmt::format(
          "{} is down, or a firewall drops what comes: it must let this host connect to all ports "
          "of the TUTTI_PORTS there",
          of);
    case WayVerdict::kStranger:
      return fmt::format("another program has that port, or another version of Tutti runs on {}",
                         of);
    case WayVerdict::kOtherAddress:
      return "addresses are translated (NAT) in between; ranks need addresses by which all hosts "
             "reach each other: TUTTI_SOCKET_IFNAME and TUTTI_ADDRESS choose them";
    default:
      return "look at `ip route` on both hosts";
  }
}

std::string text_of(int error) {
  if (error == WayVerdict::kStranger) return "what answers is not `tutti doctor`";
  if (error == WayVerdict::kOtherAddress) return "it is seen at another address";
  return std::strerror(error);
}

std::string with_interface(const SocketAddress& own) {
  const std::string name = interface_of(own);
  return name.empty() ? host_text(own) : fmt::format("{} ({})", host_text(own), name);
}

/// What this host has sent on a connection that has carried kBulk each way and had to send again.
void say_what_was_lost(DoctorReport& report, const FileDescriptor& socket) {
  constexpr unsigned kFew = 100;  // one of so many
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket.fd(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return;
  const unsigned again = info.tcpi_total_retrans;
  const unsigned sent = kBulk / std::max(info.tcpi_snd_mss, 1U) + again;
  if (again == 0) return;
  const std::string text = fmt::format("{} of about {} packets from here", again, sent);
  if (again < sent / kFew) return report.good("sent again", text);
  report.bad("sent again", text,
             "the network loses packets, which makes every call between the hosts slower: look for "
             "errors and drops of the interfaces (`ip -s link`, `ethtool -S`), and at the switches "
             "in between");
}

void say_large_messages_fail(DoctorReport& report) {
  report.bad("1 MiB there and back", fmt::format("did not arrive in {} s", kToCarry / 1s),
             "short messages do: large packets get lost on the way; compare the MTU of both "
             "hosts' interfaces (`ip link`) with what lies between");
}

}  // namespace

void test_way_to(DoctorReport& report, const std::string& to) {
  const SocketAddress there = resolve(to);
  const std::string other = host_text(there);
  report.section(fmt::format("The way to {}", to_string(there)));
  const SocketAddress own = own_address(there, setting_text("TUTTI_SOCKET_IFNAME"));
  report.good("from", with_interface(own));
  const FileDescriptor back = listen_for_ranks(own);
  if (!back) {
    throw_system_error(
        fmt::format("this host cannot listen at {}{}", host_text(own), at_which_ports()));
  }
  const Connected way = connect_as_doctor(there, own);
  if (!way.socket) {
    std::string advice = advice_for(way.error, other);
    if (way.error == ECONNREFUSED || way.error == ETIMEDOUT) {
      advice += "; `tutti doctor --listen` has to run there";
    }
    return report.bad("to it", text_of(way.error), advice);
  }
  report.good("to it", "connected in " + milliseconds(way.took));

  const Ask ask{protocol::endpoint_of(bound_address(back))};
  const auto begun = Clock::now();
  std::vector<std::byte> bulk(kBulk);
  for (std::size_t i = 0; i < bulk.size(); ++i) bulk[i] = static_cast<std::byte>(i * 31 >> 3);
  std::vector<std::byte> returned(kBulk);
  const Deadline deadline = begun + kToCarry;
  const auto answer = [&] {
    IoResult result = write_exactly(way.socket, protocol::bytes_of(ask), deadline);
    if (result == IoResult::done) result = write_exactly(way.socket, bulk, deadline);
    if (result == IoResult::done) result = read_exactly(way.socket, returned, deadline);
    return result;
  }();
  if (answer == IoResult::closed) return report.bad("1 MiB there and back", "the connection broke");
  if (answer == IoResult::timed_out) return say_large_messages_fail(report);
  if (returned != bulk) return report.bad("1 MiB there and back", "came back altered");
  report.good("1 MiB there and back", "in " + milliseconds(Clock::now() - begun));
  say_what_was_lost(report, way.socket);

  // It connects back now; and says on the first connection what has come of it.
  const Deadline last = Clock::now() + 2 * kToConnect;
  const FileDescriptor visitor = admit(std::span(&back, 1), way.socket.fd(), last);
  WayVerdict verdict;
  if (read_exactly(way.socket, protocol::writable_bytes_of(verdict), last) != IoResult::done) {
    return report.bad("from it", "it does not say what has come of it");
  }
  if (verdict.error == 0) {
    report.good("from it",
                fmt::format("connected to {} in {}", to_string(bound_address(back)),
                            milliseconds(std::chrono::microseconds(verdict.microseconds))));
    report.good("a firewall", "on either host must let the other connect to " + ports_text());
  } else {
    const auto seen = protocol::address_of(verdict.seen);
    report.bad("from it",
               fmt::format("no connection to {}: {}{}", to_string(bound_address(back)),
                           text_of(verdict.error),
                           verdict.error == WayVerdict::kOtherAddress && seen
                               ? fmt::format(" ({})", host_text(*seen))
                               : ""),
               verdict.error == ECONNREFUSED || verdict.error == ETIMEDOUT
                   ? fmt::format("a firewall of this host, or on the way: it must let {} connect "
                                 "to {}",
                                 other, ports_text())
                   : advice_for(verdict.error, "this host"));
  }
}

void await_way_test(DoctorReport& report, std::uint16_t port, std::chrono::nanoseconds wait) {
  if (port == 0) port = usual_port();
  std::vector<FileDescriptor> listeners;
  std::vector<std::string> places;
  for (const SocketAddress& address : where_to_wait()) {
    FileDescriptor listener = listen_at(with_port(address, port), true);
    if (!listener) {
      throw_system_error(fmt::format("cannot listen at {}", to_string(with_port(address, port))));
    }
    places.push_back(to_string(bound_address(listener)));
    listeners.push_back(std::move(listener));
  }
  report.section(fmt::format("Waiting at {}", fmt::join(places, " and ")));
  report.good("on the other host",
              fmt::format("run: tutti doctor --to {}", fmt::join(places, ", or --to ")));
  std::fflush(stdout);
  const FileDescriptor caller = admit(listeners, -1, deadline_after(wait));
  if (!caller) {
    return report.bad(
        "nobody", "has called",
        "a firewall of this host, or on the way, must let the others connect to " + ports_text());
  }
  const SocketAddress seen = peer_of(caller), own = bound_address(caller);
  report.section(fmt::format("The way to {}", host_text(seen)));
  report.good("from it", fmt::format("connected to {}", to_string(own)));
  const Deadline deadline = Clock::now() + kToCarry;
  Ask ask;
  std::vector<std::byte> bulk(kBulk);
  IoResult result = read_exactly(caller, protocol::writable_bytes_of(ask), deadline);
  if (result == IoResult::done) result = read_exactly(caller, bulk, deadline);
  if (result == IoResult::done) result = write_exactly(caller, bulk, deadline);
  const auto back = protocol::address_of(ask.back);
  if (result == IoResult::closed || (result == IoResult::done && !back)) {
    return report.bad("1 MiB there and back", "the connection broke");
  }
  if (result == IoResult::timed_out) return say_large_messages_fail(report);
  report.good("1 MiB there and back", "arrived");
  say_what_was_lost(report, caller);

  WayVerdict verdict;
  verdict.seen = protocol::endpoint_of(seen);
  if (!same_host(*back, seen)) {
    verdict.error = WayVerdict::kOtherAddress;
  } else {
    const Connected way = connect_as_doctor(*back, own);
    verdict.error = way.error;
    verdict.microseconds = static_cast<std::int32_t>(way.took / 1us);
  }
  write_exactly(caller, protocol::bytes_of(verdict), Clock::now() + kToConnect);
  if (verdict.error == 0) {
    report.good("to it",
                fmt::format("connected to {} in {}", to_string(*back),
                            milliseconds(std::chrono::microseconds(verdict.microseconds))));
  } else if (verdict.error == WayVerdict::kOtherAddress) {
    report.bad(
        "to it",
        fmt::format("it calls itself {}, but comes from {}", host_text(*back), host_text(seen)),
        advice_for(verdict.error, host_text(seen)));
  } else {
    report.bad("to it",
               fmt::format("no connection to {}: {}", to_string(*back), text_of(verdict.error)),
               advice_for(verdict.error, host_text(seen)));
  }
}

}  // namespace tutti
