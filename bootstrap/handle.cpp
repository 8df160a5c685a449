#include "bootstrap/handle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "core/error.h"

namespace tutti {
namespace {

constexpr std::string_view kHandleKind = "tutti1";
constexpr std::size_t kMostHostName = 255;

template <class Number>
bool read_number(std::string_view text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

std::string Handle::text() const {
  std::string name = host.substr(0, kMostHostName);
  std::ranges::replace(name, '/', '_');
  return fmt::format("{}/{}/{}/{}/{}", kHandleKind, name, pid, newest, to_string(id));
}

std::optional<Handle> Handle::from(std::string_view text) {
  std::array<std::string_view, 5> parts;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t end = i + 1 < parts.size() ? text.find('/') : text.size();
    if (end == std::string_view::npos) return std::nullopt;
    parts[i] = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  Handle handle;
  if (parts[0] != kHandleKind || parts[1].size() > kMostHostName ||
      !read_number(parts[2], handle.pid) || !read_number(parts[3], handle.newest)) {
    return std::nullopt;
  }
  handle.host = parts[1];
  try {
    handle.id = unique_id_from_string(parts[4]);
  } catch (const Error&) {
    return std::nullopt;
  }
  return handle;
}

std::string Handle::process() const { return fmt::format("pid {} on {}", pid, host); }

}  // namespace tutti
