// The one table of settings: name, type, default, meaning. Every environment variable that Tutti
// reads as a setting stands here; docs/settings.md is generated from it (`tutti settings
// --markdown`).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

enum class SettingType : std::uint8_t { text, integer, bytes, seconds, boolean };

struct Setting {
  std::string_view name;  // the environment variable, "TUTTI_..."
  SettingType type;
  std::string_view default_value;
  std::string_view meaning;  // one or two sentences
  // The limits of its value, in the form of a value; the default is allowed wherever it lies. "":
  // no limit.
  std::string_view least{}, most{};
  std::string_view section{};  // the heading of this and the following settings; "": no new one
};

std::span<const Setting> settings();
std::string_view type_name(SettingType type);
/// How a value of this type is written: "a whole number".
std::string_view expectation(SettingType type);
/// "from 2 to 4096", "at least 0"; "" without limits.
std::string range_of(const Setting& setting);

/// The value of setting `name` from the environment, or its default. A value that does not parse,
/// or is out of its range, throws Error(invalid_argument), which names the variable, the value and
/// the expected form. Bytes: "64K", "1M", "2GiB" (powers of 1024); seconds: "30", "0.5", "100ms".
std::string setting_text(std::string_view name);
std::int64_t setting_integer(std::string_view name);
std::size_t setting_bytes(std::string_view name);
std::chrono::nanoseconds setting_seconds(std::string_view name);
bool setting_boolean(std::string_view name);

/// Whether `value` is in the range of setting `name` (integer or bytes).
bool setting_allows(std::string_view name, std::uint64_t value);
/// Throws Error(invalid_argument) unless it is; `what` names the source of the value if a program
/// set it.
void check_setting(std::string_view name, std::string_view what, std::uint64_t value);
void check_setting(std::string_view name, std::string_view what, std::chrono::nanoseconds value);

/// "64K" -> 65536, "1.5K" -> 1536; for command-line programs too. Throws Error(invalid_argument).
std::size_t parse_bytes(std::string_view text);

}  // namespace tutti
