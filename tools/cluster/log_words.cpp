// See log_words.h.
#include "tools/cluster/log_words.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "core/number.h"

namespace tutti {
namespace {

constexpr std::size_t kMostWords = 48;

}  // namespace

std::string lower(std::string_view text) {
  std::string s;
  for (const char c : text) s += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return s;
}

std::string plain(std::string_view line) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b' || i + 1 == line.size() || line[i + 1] != '[') {
      text += line[i];
      continue;
    }
    for (i += 2; i < line.size() && (line[i] < '@' || line[i] > '~');) ++i;
  }
  return text;
}

Words words_of(std::string_view line) {
  if (const auto mark = line.find("<stdout>"); mark < 120) {
    line.remove_prefix(mark + 8);
    if (line.starts_with(':')) line.remove_prefix(1);
  }
  Words words;
  for (std::size_t i = 0; i < line.size() && words.size() < kMostWords;) {
    if (std::isspace(static_cast<unsigned char>(line[i])) != 0) {
      ++i;
      continue;
    }
    const std::size_t begin = i;
    while (i < line.size() && std::isspace(static_cast<unsigned char>(line[i])) == 0) ++i;
    words.push_back(line.substr(begin, i - begin));
  }
  return words;
}

namespace {

bool is_type(std::string_view word) {
  constexpr std::array kTypes{"int8",     "uint8",    "int32",  "uint32",   "int64",  "uint64",
                              "half",     "float",    "double", "bfloat16", "f8e4m3", "f8e5m2",
                              "fp8_e4m3", "fp8_e5m2", "char",   "int"};
  return std::ranges::any_of(kTypes, [&](const char* t) { return word == t; });
}

/// A number as people and spreadsheets write it: "1048576", "1,048,576", "1234.5".
std::optional<double> figure_in(std::string_view word) {
  std::string digits;
  const std::size_t end = std::min(word.find('.'), word.size());
  const std::size_t first = word.find(',');
  for (std::size_t i = 0; i < word.size(); ++i) {
    const bool comma = word[i] == ',';
    // Groups of three, from the point to the left; the first one may be shorter.
    if (comma && (i == 0 || i > end || (end - i) % 4 != 0 || first > 3)) return std::nullopt;
    if (!comma && i < end && i > first && (end - i) % 4 == 0) return std::nullopt;
    if (!comma) digits += word[i];
  }
  return parse_number<double>(digits);
}

}  // namespace

std::optional<std::int64_t> size_in(std::string_view word) {
  constexpr std::string_view kUnits = "KMGT";
  const std::size_t unit_at = std::min(word.find_first_not_of("0123456789.,"), word.size());
  const std::string_view unit = word.substr(unit_at);
  auto figure = figure_in(word.substr(0, unit_at));
  if (!figure) return std::nullopt;
  if (!unit.empty() && unit != "B") {
    const char prefix = static_cast<char>(std::toupper(static_cast<unsigned char>(unit[0])));
    const std::size_t power = kUnits.find(prefix);
    const std::string_view rest = unit.substr(1);
    const bool is_unit = power != kUnits.npos && (rest.empty() || rest == "B" || rest == "iB");
    if (!is_unit) return std::nullopt;
    *figure = std::ldexp(*figure, 10 * static_cast<int>(power + 1));
  }
  const bool whole = *figure >= 0 && *figure < 9e15 && std::floor(*figure) == *figure;
  return whole ? std::optional(static_cast<std::int64_t>(*figure)) : std::nullopt;
}

std::optional<Times> times_at(const Words& words, std::size_t at, std::int64_t bytes) {
  if (words.size() < at + 3) return std::nullopt;
  std::array<double, 3> v{};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto n = figure_in(words[at + i]);
    if (!n || *n < 0) return std::nullopt;
    v[i] = *n;
  }
  if (!(v[0] > 0)) return std::nullopt;
  const double algbw = static_cast<double>(bytes) / v[0] / 1000;
  if (std::abs(algbw - v[1]) > 0.0101 + 0.02 * algbw) return std::nullopt;
  return Times{v[0], v[1], v[2], at};
}

std::optional<Times> times_of(const Words& words, std::int64_t bytes) {
  for (std::size_t at = 3; at <= 5; ++at) {
    if (const auto t = times_at(words, at, bytes)) return t;
    if (at < words.size() && at > 3 && !parse_number<std::int64_t>(words[at])) break;
  }
  return std::nullopt;
}

std::optional<std::size_t> row_in(const Words& words) {
  for (std::size_t at = 0; at + 2 < words.size() && at <= kMostPrefix; ++at) {
    const auto bytes = size_in(words[at]);
    if (!bytes || !size_in(words[at + 1])) continue;
    if (is_type(words[at + 2])) return at;
    const bool is_word = std::isalpha(static_cast<unsigned char>(words[at + 2][0])) != 0;
    const auto row = words.begin() + static_cast<std::ptrdiff_t>(at);
    if (is_word && *bytes > 0 && times_of(Words(row, words.end()), *bytes)) return at;
  }
  return std::nullopt;
}

}  // namespace tutti
