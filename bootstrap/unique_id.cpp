// See unique_id.h. The bytes are laid out in rendezvous_protocol.cpp.
#include "bootstrap/unique_id.h"

#include <fmt/format.h>

#include <cstdlib>

#include "bootstrap/rendezvous_server.h"
#include "core/error.h"
#include "core/settings.h"
#include "transport/sockets/tcp_socket.h"

namespace tutti {
namespace {

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

MeetingPlace::MeetingPlace()
    : address(setting_text("TUTTI_ADDRESS")),
      timeout(setting_seconds("TUTTI_RENDEZVOUS_TIMEOUT")) {}

MeetingPlace MeetingPlace::among_hosts() {
  MeetingPlace place;
  const char* const chosen = std::getenv("TUTTI_ADDRESS");
  if (chosen == nullptr || *chosen == 0) place.address = host_text(address_for_others());
  return place;
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
