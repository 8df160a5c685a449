// See terminal.h.
#include "tools/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>

namespace tutti {
namespace {

// Of a text beside its indentation: a narrower column is harder to read than a long line.
constexpr std::size_t kLeast = 20;

}  // namespace

int terminal_columns() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::string wrapped(std::string_view before, std::string_view text, int columns) {
  std::string result(before);
  const std::size_t width = static_cast<std::size_t>(std::max(columns, 0));
  if (width < before.size() + kLeast) return result.append(text) + "\n";
  const std::size_t room = width - before.size();
  while (text.size() > room) {
    // The last space of what fits, or of a longer word the first one after it.
    std::size_t end = text.rfind(' ', room);
    if (end == std::string_view::npos || end == 0) end = text.find(' ', room);
    if (end == std::string_view::npos) break;
    result.append(text.substr(0, end)) += "\n" + std::string(before.size(), ' ');
    text.remove_prefix(end + 1);
  }
  return result.append(text) + "\n";
}

void print_wrapped(std::string_view before, std::string_view text) {
  fmt::print("{}", wrapped(before, text, terminal_columns()));
}

}  // namespace tutti
