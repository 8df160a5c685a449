// See unique_id.h. The bytes are laid out in rendezvous_protocol.cpp.
#include "bootstrap/unique_id.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <vector>

#include "bootstrap/meeting_place.h"
#include "bootstrap/rendezvous_protocol.h"
#include "bootstrap/rendezvous_server.h"
#include "core/error.h"
#include "core/settings.h"
#include "transport/sockets/named_host.h"
#include "transport/sockets/own_addresses.h"

namespace tutti {
namespace {

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// The addresses at which this process has reached others of its job already, or is told to: of the
/// launcher, and of the host that has the store. What cannot be read is others' to refuse.
void add_reached_by_environment(std::vector<SocketAddress>& reached) {
  try {
    const std::string id = setting_text("TUTTI_UNIQUE_ID");
    if (!id.empty()) reached.push_back(protocol::decode(unique_id_from_string(id)).address);
  } catch (const Error&) {
  }
  try {
    const char* const master = std::getenv("MASTER_ADDR");
    if (master != nullptr && *master != 0)
      std::ranges::copy(addresses_of(master, 0), std::back_inserter(reached));
  } catch (const Error&) {
  }
}

}  // namespace

MeetingPlace::MeetingPlace()
    : address(setting_text("TUTTI_ADDRESS")),
      timeout(setting_seconds("TUTTI_RENDEZVOUS_TIMEOUT")) {}

MeetingPlace MeetingPlace::among_hosts() {
  return place_among_hosts({}, setting_text("TUTTI_SOCKET_IFNAME"));
}

MeetingPlace place_among_hosts(std::span<const SocketAddress> reached,
                               const std::string& interfaces) {
  MeetingPlace place;
  if (!place.address.empty()) return place;
  place.address = host_text(addresses_for_others(reached, interfaces).front());
  return place;
}

std::vector<SocketAddress> addresses_for_others(std::span<const SocketAddress> reached,
                                                const std::string& interfaces) {
  std::vector<SocketAddress> all(reached.begin(), reached.end());
  add_reached_by_environment(all);
  return own_addresses().for_others(all, interfaces);
}

UniqueId make_unique_id(const MeetingPlace& place) { return serve_rendezvous(Rounds::one, place); }

std::string to_string(const UniqueId& id) {
  std::string text;
  text.reserve(2 * id.bytes.size());
  for (const std::byte byte : id.bytes) {
    text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  }
  return text;
}

UniqueId unique_id_from_string(std::string_view text) {
  UniqueId id;
  // The message does not quote the text: it may be most of a secret.
  if (text.size() != 2 * id.bytes.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("a unique id is {} hexadecimal digits, but this text has {} characters",
                            2 * id.bytes.size(), text.size()));
  }
  for (std::size_t i = 0; i < id.bytes.size(); ++i) {
    const int high = digit(text[2 * i]);
    const int low = digit(text[2 * i + 1]);
    if (high < 0 || low < 0) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("a unique id is {} hexadecimal digits, but character {} or {} of this "
                      "text is none",
                      2 * id.bytes.size(), 2 * i + 1, 2 * i + 2));
    }
    id.bytes[i] = static_cast<std::byte>(high * 16 + low);
  }
  return id;
}

}  // namespace tutti
