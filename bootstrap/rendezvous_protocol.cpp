// See rendezvous_protocol.h.
#include "bootstrap/rendezvous_protocol.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace tutti::wire {
namespace {

constexpr std::array<char, 8> kIdMagic{'t', 'u', 't', 't', 'i', '-', 'i', 'd'};
constexpr std::uint8_t kIdVersion = 1;

/// The 128 bytes of a UniqueId. The checksum tells a damaged id from a wrong one.
struct IdLayout {
  std::array<char, 8> magic = kIdMagic;
  std::uint8_t version = kIdVersion;
  std::uint8_t family = 0;               // 4 or 6
  std::array<std::uint8_t, 2> port{};    // big-endian
  std::array<std::uint8_t, 4> unused{};  // 0
  std::array<std::byte, 16> address{};   // IPv4 in the first 4
  Bytes32 secret{};
  std::array<std::byte, 32> reserved{};  // 0
  Bytes32 checksum{};
};
static_assert(sizeof(IdLayout) == sizeof(UniqueId));

Bytes32 checksum_of(const IdLayout& layout) {
  return hash({}, "id", {bytes_of(layout).first(offsetof(IdLayout, checksum))});
}

}  // namespace

UniqueId encode(const Ticket& ticket) {
  IdLayout layout;
  layout.secret = ticket.secret;
  std::uint16_t port = 0;
  if (ticket.address.family() == AF_INET) {
    sockaddr_in ipv4{};
    std::memcpy(&ipv4, &ticket.address.storage, sizeof ipv4);
    layout.family = 4;
    port = ipv4.sin_port;
    std::memcpy(layout.address.data(), &ipv4.sin_addr, sizeof ipv4.sin_addr);
  } else {
    sockaddr_in6 ipv6{};
    std::memcpy(&ipv6, &ticket.address.storage, sizeof ipv6);
    layout.family = 6;
    port = ipv6.sin6_port;
    std::memcpy(layout.address.data(), &ipv6.sin6_addr, sizeof ipv6.sin6_addr);
  }
  std::memcpy(layout.port.data(), &port, sizeof port);
  layout.checksum = checksum_of(layout);
  UniqueId id;
  std::memcpy(id.bytes.data(), &layout, sizeof layout);
  return id;
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
  if (layout.checksum != checksum_of(layout) || (layout.family != 4 && layout.family != 6)) {
    throw Error(ErrorCode::invalid_argument,
                "this unique id is damaged (its checksum is wrong): hand all 128 bytes on "
                "unchanged");
  }
  Ticket ticket;
  ticket.secret = layout.secret;
  std::uint16_t port = 0;
  std::memcpy(&port, layout.port.data(), sizeof port);
  char text[INET6_ADDRSTRLEN] = {};
  ::inet_ntop(layout.family == 4 ? AF_INET : AF_INET6, layout.address.data(), text, sizeof text);
  const auto address = parse_address(text, ntohs(port));
  if (!address) throw Error(ErrorCode::internal, "a unique id holds an address without a form");
  ticket.address = *address;
  return ticket;
}

Bytes32 hello_mac(const Session& session, const Hello& hello) {
  return session.mac("hello", {bytes_of(hello)});
}

Bytes32 reply_mac(const Session& session, const ReplyHeader& header, const Bytes32& payload_hash) {
  return session.mac("reply", {bytes_of(header), payload_hash});
}

Bytes32 session_secret(const Bytes32& id_secret, const Bytes32& nonce) {
  return hash(id_secret, "session", {nonce});
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

}  // namespace tutti::wire
