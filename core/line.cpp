#include "core/line.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/error.h"

namespace tutti {
namespace {

/// The beginning of what was found: short, and fit to print whatever the text consists of.
std::string quoted(std::string_view found) {
  constexpr std::size_t kShown = 24;
  if (found.empty()) return "the end of the line";
  std::string shown = "'";
  for (const char c : found.substr(0, kShown)) shown += c >= ' ' && c <= '~' ? c : '?';
  return shown + (found.size() > kShown ? "...'" : "'");
}

}  // namespace

bool is_word(std::string_view text) {
  constexpr std::size_t kLongest = 64;
  if (text.empty() || text.size() > kLongest) return false;
  return std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
}

bool Line::take(std::string_view token) {
  if (!rest_.starts_with(token)) return false;
  rest_.remove_prefix(token.size());
  skip_space();
  return true;
}

void Line::expect(std::string_view token) {
  if (!take(token)) fail(fmt::format("'{}'", token));
}

std::string_view Line::word() {
  std::size_t n = 0;
  while (n < rest_.size() && is_word(rest_.substr(n, 1))) ++n;
  const std::string_view w = rest_.substr(0, n);
  rest_.remove_prefix(n);
  skip_space();
  return w;
}

std::uint64_t Line::wide_number(std::string_view what, std::uint64_t least, std::uint64_t most) {
  std::uint64_t value = 0;
  std::size_t n = 0;
  for (; n < rest_.size() && rest_[n] >= '0' && rest_[n] <= '9'; ++n) {
    value = value * 10 + static_cast<std::uint64_t>(rest_[n] - '0');
    if (value > most) break;
  }
  if (n == 0 || value < least || value > most)
    fail(fmt::format("{} ({} to {})", what, least, most));
  rest_.remove_prefix(n);
  skip_space();
  return value;
}

void Line::expect_end() {
  if (!at_end()) fail("the end of the line");
}

void Line::fail_at(std::string_view expected, std::string_view found) const {
  complain(fmt::format("expected {}, found {}", expected, quoted(found)));
}

void Line::complain(std::string_view what) const {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}, line {}: {}", text_, number_, what));
}

void Line::skip_space() {
  while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t')) rest_.remove_prefix(1);
}

std::optional<Line> Lines::next() {
  while (at_ < content_.size()) {
    const std::size_t end = std::min(content_.find('\n', at_), content_.size());
    std::string_view line = content_.substr(at_, end - at_);
    at_ = end + 1;
    ++number_;
    line = line.substr(0, line.find('#'));
    const std::size_t last = line.find_last_not_of(" \t\r");
    if (last == std::string_view::npos) continue;
    return Line(line.substr(0, last + 1), number_, text_);
  }
  return std::nullopt;
}

Line Lines::expect_next(std::string_view expected) {
  const std::optional<Line> line = next();
  if (!line) at_end().fail(expected);
  return *line;
}

}  // namespace tutti
