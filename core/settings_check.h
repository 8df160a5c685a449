// Finds mistakes in the environment: variables that look like a setting of Tutti and are not one,
// and settings with unreadable values. Without it, a mistyped name would silently do nothing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// A variable with a name that begins with TUTTI_ and is not that of a setting. Variables of tests
/// (TUTTI_TEST_) do not count.
struct UnknownSetting {
  std::string name;
  std::string_view nearest;  // the setting that it resembles; "": none
};
/// By name.
std::vector<UnknownSetting> unknown_settings();
/// Logs a warning for each that resembles a setting, at the first call.
void warn_of_mistyped_settings();

/// Describes the settings in the environment with values that do not parse or are out of range. A
/// text may have any value here.
std::vector<std::string> unreadable_settings();

}  // namespace tutti
