// What in the environment looks like a setting of Tutti and is none, or has a value that cannot be
// read: a mistyped name would otherwise do nothing, in silence.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

/// A variable whose name begins with TUTTI_ and is no setting's. Not those of tests (TUTTI_TEST_).
struct UnknownSetting {
  std::string name;
  std::string_view nearest;  // the setting that it resembles; "": none
};
/// By name.
std::vector<UnknownSetting> unknown_settings();
/// Logs a warning for each that resembles a setting, the first time that it is called.
void warn_of_mistyped_settings();

/// Of the settings that the environment has: what is wrong with values of theirs that do not parse
/// or are out of range. Texts can have any value here.
std::vector<std::string> unreadable_settings();

}  // namespace tutti
