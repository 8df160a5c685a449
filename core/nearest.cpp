// See nearest.h.
#include "core/nearest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>

namespace tutti {
namespace {

/// How many letters have to be put in, left out, changed or swapped with the next.
std::size_t edits(std::string_view a, std::string_view b) {
  // Rows of the usual table: two before, before, and now.
  std::array<std::vector<std::size_t>, 3> rows;
  for (auto& row : rows) row.resize(b.size() + 1);
  std::iota(rows[1].begin(), rows[1].end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto& now = rows[2];
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = rows[1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      now[j] = std::min({rows[1][j] + 1, now[j - 1] + 1, change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) now[j] = std::min(now[j], rows[0][j - 2] + 1);
    }
    std::rotate(rows.begin(), rows.begin() + 1, rows.end());
  }
  return rows[1][b.size()];
}

/// Without underscores and hyphens.
std::string letters(std::string_view name) {
  std::string result(name);
  std::erase_if(result, [](char c) { return c == '_' || c == '-'; });
  return result;
}

}  // namespace

std::string_view nearest_name(std::string_view word, const std::vector<std::string_view>& names) {
  const std::string wanted = letters(word);
  std::string_view nearest;
  std::size_t least = 3;  // more edits than that are another word
  for (const std::string_view name : names) {
    const std::string has = letters(name);
    std::size_t distance = edits(wanted, has);
    if (has.size() <= 4 && distance > 1) distance = least;  // of a short word little would be left
    // LOGLEVEL is LOG, and SOCKET is SOCKET_IFNAME.
    const bool begins = std::min(wanted.size(), has.size()) >= 3 &&
                        (wanted.starts_with(has) || has.starts_with(wanted));
    if (begins) distance = std::min<std::size_t>(distance, 2);
    if (distance < least) {
      least = distance;
      nearest = name;
    }
  }
  return nearest;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string_view>& names) {
  const std::string_view nearest = nearest_name(word, names);
  return nearest.empty() ? "" : fmt::format(" (did you mean '{}'?)", nearest);
}

}  // namespace tutti
