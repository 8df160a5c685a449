// See cpu_mask.h.
#include "core/cpu_mask.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/number.h"

namespace tutti {
namespace {

constexpr int kMost = 1 << 16;

/// The parts between commas.
std::vector<std::string_view> parts_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    parts.push_back(trimmed(text.substr(at, end - at)));
    at = end + 1;
  }
  return parts;
}

}  // namespace

std::set<int> members_of_mask(std::string_view mask) {
  std::set<int> members;
  const auto parts = parts_of(mask);
  int base = 0;
  for (auto part = parts.rbegin(); part != parts.rend() && base < kMost; ++part, base += 32) {
    std::string_view digits = *part;
    if (digits.starts_with("0x")) digits.remove_prefix(2);
    const auto word = parse_number<std::int64_t>(digits, 16);
    for (int bit = 0; word && bit < 32; ++bit) {
      if (*word >> bit & 1) members.insert(base + bit);
    }
  }
  return members;
}

std::set<int> members_of_list(std::string_view list) {
  std::set<int> members;
  for (const std::string_view part : parts_of(list)) {
    const std::size_t dash = part.find('-');
    const auto first = parse_number<std::int64_t>(part.substr(0, dash));
    const auto last =
        dash == std::string_view::npos ? first : parse_number<std::int64_t>(part.substr(dash + 1));
    if (!first || !last || *first < 0) continue;
    for (auto i = *first; i <= std::min<std::int64_t>(*last, kMost - 1); ++i) {
      members.insert(static_cast<int>(i));
    }
  }
  return members;
}

std::string mask_of(const std::set<int>& members) {
  if (members.empty()) return "";
  std::vector<std::uint32_t> words(static_cast<std::size_t>(*members.rbegin() / 32 + 1));
  for (const int m : members) words[static_cast<std::size_t>(m / 32)] |= 1U << (m % 32);
  std::string text;
  for (auto word = words.rbegin(); word != words.rend(); ++word) {
    text += fmt::format("{}{:08x}", text.empty() ? "" : ",", *word);
  }
  return text;
}

}  // namespace tutti
