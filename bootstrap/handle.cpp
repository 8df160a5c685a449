#include "bootstrap/handle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>

#include "bootstrap/rendezvous_protocol.h"
#include "core/error.h"
#include "core/number.h"
#include "transport/sockets/crc32c.h"

namespace tutti {
namespace {

constexpr std::string_view kHandleKind = "tutti2";
constexpr std::size_t kMostHostName = 255;

std::string checksum_of(std::string_view text) {
  return fmt::format("/{:08x}", crc32c(std::as_bytes(std::span(text))));
}

}  // namespace

std::string Handle::text() const {
  std::string name = host.substr(0, kMostHostName);
  std::ranges::replace(name, '/', '_');
  const std::string what =
      fmt::format("{}/{}/{}/{}/{}", kHandleKind, name, pid, newest, to_string(id));
  return what + checksum_of(what);
}

std::optional<Handle> Handle::from(std::string_view text) {
  const std::string_view what = text.substr(0, text.rfind('/'));
  if (text.substr(what.size()) != checksum_of(what)) return std::nullopt;
  text = what;
  std::array<std::string_view, 5> parts;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t end = i + 1 < parts.size() ? text.find('/') : text.size();
    if (end == std::string_view::npos) return std::nullopt;
    parts[i] = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  const auto pid = parse_number<std::int64_t>(parts[2]);
  const auto newest = parse_number<std::uint64_t>(parts[3]);
  if (parts[0] != kHandleKind || parts[1].size() > kMostHostName || !pid || !newest) {
    return std::nullopt;
  }
  Handle handle{std::string(parts[1]), *pid, *newest, {}};
  try {
    handle.id = unique_id_from_string(parts[4]);
    protocol::decode(handle.id);  // throws for a damaged one
  } catch (const Error&) {
    return std::nullopt;
  }
  return handle;
}

std::string Handle::process() const { return fmt::format("pid {} on {}", pid, host); }

}  // namespace tutti
