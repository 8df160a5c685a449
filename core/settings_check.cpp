// See settings_check.h.
#include "core/settings_check.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>

#include "core/error.h"
#include "core/log.h"
#include "core/nearest.h"
#include "core/settings.h"

namespace tutti {
namespace {

constexpr std::string_view kPrefix = "TUTTI_";

/// The setting that `name` resembles, beside the prefix that all have; "": none.
std::string_view nearest_setting(std::string_view name) {
  std::vector<std::string_view> names;
  for (const Setting& setting : settings()) names.push_back(setting.name.substr(kPrefix.size()));
  const std::string_view nearest = nearest_name(name.substr(kPrefix.size()), names);
  const auto found = std::ranges::find_if(settings(), [&](const Setting& setting) {
    return !nearest.empty() && setting.name.substr(kPrefix.size()) == nearest;
  });
  return found == settings().end() ? std::string_view() : found->name;
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
