#include "core/settings_page.h"

#include <fmt/format.h>

#include <iterator>
#include <string_view>

#include "core/settings.h"

namespace tutti {

std::string settings_markdown() {
  std::string page =
      "# Settings\n\n"
      "Every environment variable that Tutti reads as a setting. This page is generated from the\n"
      "table in `core/settings.cpp` by `tutti settings --markdown`.\n";
  for (const Setting& setting : settings()) {
    if (!setting.section.empty()) {
      fmt::format_to(std::back_inserter(page),
                     "\n## {}\n\n| variable | type | range | default | meaning |\n"
                     "|---|---|---|---|---|\n",
                     setting.section);
    }
    const std::string value =
        setting.default_value.empty() ? "(empty)" : fmt::format("`{}`", setting.default_value);
    fmt::format_to(std::back_inserter(page), "| `{}` | {} | {} | {} | {} |\n", setting.name,
                   type_name(setting.type), range_of(setting), value, setting.meaning);
  }
  page +=
      "\n## How values are written\n\n"
      "A value out of its range is refused; the default is allowed wherever it lies.\n\n";
  for (const SettingType type :
       {SettingType::integer, SettingType::bytes, SettingType::seconds, SettingType::boolean}) {
    fmt::format_to(std::back_inserter(page), "- {}: {}\n", type_name(type), expectation(type));
  }
  return page;
}

}  // namespace tutti
