// See rank_listener.h.
#include "transport/sockets/rank_listener.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>

#include "core/error.h"
#include "core/number.h"
#include "core/settings.h"
#include "transport/sockets/own_addresses.h"

namespace tutti {

std::optional<std::uint16_t> port_from(std::string_view text) {
  const auto port = parse_number<std::uint16_t>(text);
  return port && *port > 0 ? port : std::nullopt;
}

PortRange port_range() {
  const std::string text = setting_text("TUTTI_PORTS");
  if (text.empty()) return {};
  const std::size_t dash = text.find('-');
  const auto first = port_from(std::string_view(text).substr(0, dash));
  const auto last =
      dash == std::string::npos ? first : port_from(std::string_view(text).substr(dash + 1));
  if (!first || !last || *first > *last) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the environment variable TUTTI_PORTS is \"{}\"; expected a range of "
                            "TCP ports, such as 20000-20100, or one, from 1 to 65535",
                            text));
  }
  return {*first, *last};
}

FileDescriptor listen_for_ranks(const SocketAddress& address) {
  const PortRange range = port_range();
  if (range.first == 0) return listen_at(address);
  // Ranks that start at once do not all begin with the first.
  static std::atomic<unsigned> calls{0};
  const unsigned count = range.last - range.first + 1U;
  const unsigned begin = static_cast<unsigned>(::getpid()) + calls.fetch_add(1);
  for (unsigned i = 0; i < count; ++i) {
    const auto port = static_cast<std::uint16_t>(range.first + (begin + i) % count);
    FileDescriptor socket = listen_at(with_port(address, port), true);
    if (socket || errno != EADDRINUSE) return socket;
  }
  errno = EADDRINUSE;
  return {};
}

std::string at_which_ports() {
  const std::string ports = setting_text("TUTTI_PORTS");
  return ports.empty() ? "" : fmt::format(" at a port of TUTTI_PORTS={}", ports);
}

SocketAddress listening_address(const std::string& text) {
  const auto address = parse_address(text, 0);
  if (!address) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("TUTTI_ADDRESS is '{}', which is neither an IPv4 nor an IPv6 address", text));
  }
  if (!is_of_one_host(*address)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("TUTTI_ADDRESS is {}, which is no host's address, so no rank can "
                            "connect to it; it can be one of this host's: {}",
                            text, own_addresses_text()));
  }
  return text.find('%') == std::string::npos ? as_reached_from_here(*address) : *address;
}

}  // namespace tutti
