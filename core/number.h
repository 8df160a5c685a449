// Numbers from text.
//
// Streams are no way to them: `stream >> number` reads by the program's locale, in which "12 3" may
// be one number, as a space or a comma may stand between thousands.
#pragma once

#include <algorithm>
#include <charconv>
#include <cmath>
#include <concepts>
#include <optional>
#include <string_view>
#include <system_error>

namespace tutti {

/// Takes the first word off `text`, which blanks, tabs and line ends surround; "": there is none.
inline std::string_view take_word(std::string_view& text) {
  constexpr std::string_view kSpace = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(kSpace));
  text.remove_prefix(word.size());
  return word;
}

/// All of `text` as a number of type T, in its range; a minus sign may begin it where T has one.
/// Nothing for any other text, or for what is not finite. `base`: of integers.
template <class T>
std::optional<T> parse_number(std::string_view text, int base = 10) {
  T number{};
  const char* const end = text.data() + text.size();
  std::from_chars_result read{};
  if constexpr (std::floating_point<T>) {
    read = std::from_chars(text.data(), end, number);
    if (!std::isfinite(number)) return std::nullopt;
  } else {
    read = std::from_chars(text.data(), end, number, base);
  }
  if (read.ec != std::errc{} || read.ptr != end) return std::nullopt;
  return number;
}

/// Without the blanks, tabs and line ends around it.
inline std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

}  // namespace tutti
