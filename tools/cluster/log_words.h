// Lines of logs as words and numbers: without what terminals, launchers, and collectors of logs add
// to them, and with figures as people and spreadsheets write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

using Words = std::vector<std::string_view>;

/// Words that launchers and collectors of logs put before a line, at most.
constexpr std::size_t kMostPrefix = 12;

std::string lower(std::string_view text);
/// Without the colours of terminals.
std::string plain(std::string_view line);
/// The first words of a line, without what MPI's launchers write before it.
Words words_of(std::string_view line);

struct Times {
  double us = 0, algbw = 0, busbw = 0;
  std::size_t at = 0;  // the first of these words
};
/// Time, algbw and busbw at words[at], if they are this size's: algbw is size / time, as printed.
std::optional<Times> times_at(const Words& words, std::size_t at, std::int64_t bytes);
/// Where a row's times begin: after the operator and the root, which are not in all dialects.
std::optional<Times> times_of(const Words& words, std::int64_t bytes);
/// Where a row begins, behind what a launcher or a collector of logs may have put before it. A type
/// that is not known makes a row only with times that fit.
std::optional<std::size_t> row_in(const Words& words);

/// Bytes, or elements: a figure, perhaps with a unit ("1M", "1.5MiB"); powers of 1024.
std::optional<std::int64_t> size_in(std::string_view word);

}  // namespace tutti
