// See rendezvous_protocol.h.
#include "bootstrap/rendezvous_protocol.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "transport/sockets/own_addresses.h"

namespace tutti::protocol {
namespace {

constexpr std::array<char, 8> kIdMagic{'t', 'u', 't', 't', 'i', '-', 'i', 'd'};
constexpr std::uint8_t kIdVersion = 1;

/// The 128 bytes of a UniqueId. The checksum tells a damaged id from a wrong one.
struct IdLayout {
  std::array<char, 8> magic = kIdMagic;
  std::uint8_t version = kIdVersion;
  std::uint8_t family = 0;               // as in an Endpoint
  std::array<std::uint8_t, 2> port{};    //
  std::array<std::uint8_t, 4> unused{};  // 0
  std::array<std::byte, 16> address{};   // as in an Endpoint
  Bytes32 secret{};
  std::array<std::byte, 32> reserved{};  // 0
  Bytes32 checksum{};
};
static_assert(sizeof(IdLayout) == sizeof(UniqueId));

Bytes32 checksum_of(const IdLayout& layout) {
  return hash({}, "id", {bytes_of(layout).first(offsetof(IdLayout, checksum))});
}

}  // namespace

Endpoint endpoint_of(const SocketAddress& address) {
  Endpoint endpoint;
  std::uint16_t port = 0;
  if (address.family() == AF_INET) {
    sockaddr_in ipv4{};
    std::memcpy(&ipv4, &address.storage, sizeof ipv4);
    endpoint.family = 4;
    port = ipv4.sin_port;
    std::memcpy(endpoint.address.data(), &ipv4.sin_addr, sizeof ipv4.sin_addr);
  } else {
    sockaddr_in6 ipv6{};
    std::memcpy(&ipv6, &address.storage, sizeof ipv6);
    endpoint.family = 6;
    port = ipv6.sin6_port;
    std::memcpy(endpoint.address.data(), &ipv6.sin6_addr, sizeof ipv6.sin6_addr);
  }
  std::memcpy(endpoint.port.data(), &port, sizeof port);
  return endpoint;
}

std::optional<SocketAddress> address_of(const Endpoint& endpoint) {
  if (endpoint.family != 4 && endpoint.family != 6) return std::nullopt;
  std::uint16_t port = 0;
  std::memcpy(&port, endpoint.port.data(), sizeof port);
  if (port == 0) return std::nullopt;
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(endpoint.family == 4 ? AF_INET : AF_INET6, endpoint.address.data(), text,
              sizeof text);
  const auto address = parse_address(text, ntohs(port));
  return address ? std::optional(as_reached_from_here(*address)) : std::nullopt;
}

UniqueId encode(const Ticket& ticket) {
  const Endpoint endpoint = endpoint_of(ticket.address);
  IdLayout layout;
  layout.secret = ticket.secret;
  layout.family = endpoint.family;
  layout.port = endpoint.port;
  layout.address = endpoint.address;
  layout.checksum = checksum_of(layout);
  UniqueId id;
  std::memcpy(id.bytes.data(), &layout, sizeof layout);
  return id;
}

bool is_id(const UniqueId& id) {
  IdLayout layout;
  std::memcpy(static_cast<void*>(&layout), id.bytes.data(), sizeof layout);
  return layout.magic == kIdMagic;
}

Ticket decode(const UniqueId& id) {
  IdLayout layout;
  std::memcpy(static_cast<void*>(&layout), id.bytes.data(), sizeof layout);
  if (layout.magic != kIdMagic) {
    throw Error(ErrorCode::invalid_argument,
                "these 128 bytes are not a unique id of Tutti; rank 0 makes one with "
                "make_unique_id() and hands it to the others unchanged");
  }
  if (layout.version != kIdVersion) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("this unique id has version {}, but this Tutti reads version {}: all "
                            "ranks need the same Tutti",
                            layout.version, kIdVersion));
  }
  if (layout.checksum != checksum_of(layout)) {
    throw Error(ErrorCode::invalid_argument,
                "this unique id is damaged (its checksum is wrong): hand all 128 bytes on "
                "unchanged");
  }
  Endpoint endpoint;
  endpoint.family = layout.family;
  endpoint.port = layout.port;
  endpoint.address = layout.address;
  const auto address = address_of(endpoint);
  if (!address) throw Error(ErrorCode::invalid_argument, "this unique id holds no address");
  return {*address, layout.secret};
}

Buffer failure_frame(const Session& session, FrameType type, const Error& error,
                     std::uint64_t number) {
  const Failure failure{static_cast<std::uint32_t>(error.code()), error.rank(), number};
  const std::string_view text = std::string_view(error.what()).substr(0, kMaxErrorText);
  return frame(session, type, {bytes_of(failure), std::as_bytes(std::span(text))});
}

std::optional<Error> failure_in(std::span<const std::byte> payload, int size) {
  Failure failure;
  if (payload.size() < sizeof failure || payload.size() > sizeof failure + kMaxErrorText) {
    return std::nullopt;
  }
  std::memcpy(&failure, payload.data(), sizeof failure);
  const auto text = payload.subspan(sizeof failure);
  const bool known = failure.code >= static_cast<std::uint32_t>(ErrorCode::invalid_argument) &&
                     failure.code <= static_cast<std::uint32_t>(ErrorCode::internal);
  return Error(known ? static_cast<ErrorCode>(failure.code) : ErrorCode::internal,
               std::string(reinterpret_cast<const char*>(text.data()), text.size()),
               failure.rank >= 0 && failure.rank < size ? failure.rank : -1);
}

std::uint64_t number_in(std::span<const std::byte> payload) {
  Failure failure;
  if (payload.size() >= sizeof failure) std::memcpy(&failure, payload.data(), sizeof failure);
  return failure.number;
}

std::vector<std::byte> roster_bytes(std::span<const std::vector<std::byte>> cards) {
  std::vector<std::byte> bytes(cards.size() * sizeof(std::uint16_t));
  for (std::size_t r = 0; r < cards.size(); ++r) {
    const auto length = static_cast<std::uint16_t>(cards[r].size());
    std::memcpy(bytes.data() + r * sizeof length, &length, sizeof length);
    bytes.insert(bytes.end(), cards[r].begin(), cards[r].end());
  }
  return bytes;
}

bool may_be_roster(std::uint64_t bytes, int size) {
  const auto ranks = static_cast<std::uint64_t>(size);
  return bytes >= ranks * sizeof(std::uint16_t) &&
         bytes <= ranks * (sizeof(std::uint16_t) + kMaxCardBytes);
}

Bytes32 roster_hash(std::span<const std::byte> roster) { return hash({}, "roster", {roster}); }

Bytes32 session_secret(const Bytes32& id_secret, const Bytes32& nonce) {
  return hash(id_secret, "session", {nonce});
}

Bytes32 tree_secret(const Bytes32& id_secret) { return hash(id_secret, "tree", {}); }

std::string_view loopback_remark(const SocketAddress& address) {
  return is_loopback(address) ? "; a loopback address leads nowhere but to the own host: if the id "
                                "is from another one, set TUTTI_ADDRESS there"
                              : "";
}

std::string list_ranks(std::span<const int> ranks) {
  constexpr std::size_t kShown = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const std::size_t shown = ranks.size() <= kShown + 1 ? ranks.size() : kShown;
  for (std::size_t i = 0; i < shown; ++i) {
    const bool last = i + 1 == ranks.size();
    text += fmt::format("{}{}", i == 0 ? "" : last ? " and " : ", ", ranks[i]);
  }
  if (shown < ranks.size()) text += fmt::format(" and {} more", ranks.size() - shown);
  return text;
}

}  // namespace tutti::protocol

namespace tutti {

std::optional<Roster> Roster::from(std::vector<std::byte> bytes, int size) {
  if (!protocol::may_be_roster(bytes.size(), size)) return std::nullopt;
  Roster roster;
  const auto ranks = static_cast<std::size_t>(size);
  roster.begins_.resize(ranks + 1);
  std::size_t at = ranks * sizeof(std::uint16_t);
  for (std::size_t r = 0; r < ranks; ++r) {
    std::uint16_t length = 0;
    std::memcpy(&length, bytes.data() + r * sizeof length, sizeof length);
    if (length > kMaxCardBytes) return std::nullopt;
    roster.begins_[r] = static_cast<std::uint32_t>(at);
    at += length;
  }
  roster.begins_[ranks] = static_cast<std::uint32_t>(at);
  if (at != bytes.size()) return std::nullopt;
  roster.bytes_ = std::move(bytes);
  return roster;
}

}  // namespace tutti
