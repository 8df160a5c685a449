// See settings_check.h.
#include "core/settings_check.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <numeric>

#include "core/error.h"
#include "core/log.h"
#include "core/settings.h"

namespace tutti {
namespace {

constexpr std::string_view kPrefix = "TUTTI_";

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

/// Without the prefix and underscores.
std::string letters(std::string_view name) {
  std::string result(name.substr(kPrefix.size()));
  std::erase(result, '_');
  return result;
}

std::string_view nearest_setting(std::string_view name) {
  const std::string wanted = letters(name);
  std::string_view nearest;
  std::size_t least = 3;  // more edits than that are another word
  for (const Setting& setting : settings()) {
    const std::string has = letters(setting.name);
    std::size_t distance = edits(wanted, has);
    if (has.size() <= 4 && distance > 1) distance = least;  // of a short word little would be left
    // LOGLEVEL is LOG, and SOCKET is SOCKET_IFNAME.
    const bool begins = std::min(wanted.size(), has.size()) >= 3 &&
                        (wanted.starts_with(has) || has.starts_with(wanted));
    if (begins) distance = std::min<std::size_t>(distance, 2);
    if (distance < least) {
      least = distance;
      nearest = setting.name;
    }
  }
  return nearest;
}

}  // namespace

std::vector<UnknownSetting> unknown_settings() {
  std::vector<UnknownSetting> unknown;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with(kPrefix) || name.starts_with("TUTTI_TEST_")) continue;
    const auto is = [&](const Setting& setting) { return setting.name == name; };
    if (std::ranges::none_of(settings(), is)) {
      unknown.push_back({std::string(name), nearest_setting(name)});
    }
  }
  std::ranges::sort(unknown, {}, &UnknownSetting::name);
  return unknown;
}

void warn_of_mistyped_settings() {
  static std::once_flag once;
  std::call_once(once, [] {
    for (const UnknownSetting& unknown : unknown_settings()) {
      if (unknown.nearest.empty()) continue;
      log().warn(
          "{} is set, which is no setting of Tutti and does nothing; is {} meant? (`tutti "
          "settings` lists all)",
          unknown.name, unknown.nearest);
    }
  });
}

std::vector<std::string> unreadable_settings() {
  std::vector<std::string> problems;
  for (const Setting& setting : settings()) {
    // The names in the table are literals, so they end in a zero.
    if (std::getenv(setting.name.data()) == nullptr) continue;
    try {
      switch (setting.type) {
        case SettingType::text:
          break;
        case SettingType::integer:
          setting_integer(setting.name);
          break;
        case SettingType::bytes:
          setting_bytes(setting.name);
          break;
        case SettingType::seconds:
          setting_seconds(setting.name);
          break;
        case SettingType::boolean:
          setting_boolean(setting.name);
          break;
      }
    } catch (const Error& error) {
      problems.push_back(error.what());
    }
  }
  return problems;
}

}  // namespace tutti
