// See bus_id.h.
#include "topology/bus_id.h"

#include <fmt/format.h>

#include "core/number.h"

namespace tutti::topology {
namespace {

/// One field of hexadecimal digits, up to `separator` (0: the end), taken off `text`.
std::optional<std::uint32_t> take(std::string_view& text, char separator, std::uint32_t most) {
  const std::size_t end = separator == 0 ? text.size() : text.find(separator);
  if (end == std::string_view::npos || end == 0 || end > 8) return {};
  const auto value = parse_number<std::uint32_t>(text.substr(0, end), 16);
  if (!value || *value > most) return {};
  text.remove_prefix(separator == 0 ? end : end + 1);
  return value;
}

}  // namespace

std::optional<BusId> parse_bus_id(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return {};
  BusId id;
  if (text.find(':', colon + 1) != std::string_view::npos) {
    const auto domain = take(text, ':', 0xffffffff);
    if (!domain) return {};
    id.domain = *domain;
  }
  const auto bus = take(text, ':', 0xff);
  const auto device = bus ? take(text, '.', 0xff) : bus;  // ff in fffffff:ff:ff.0
  const auto function = device ? take(text, 0, 0xf) : device;
  if (!function) return {};
  id.bus = static_cast<std::uint8_t>(*bus);
  id.device = static_cast<std::uint8_t>(*device);
  id.function = static_cast<std::uint8_t>(*function);
  return id;
}

std::string text_of(const BusId& id) {
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", id.domain, id.bus, id.device, id.function);
}

}  // namespace tutti::topology
