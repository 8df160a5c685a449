// Values of settings from the environment: each is read within its range, or refused with a
// sentence that names the variable.
#include <cstdlib>

#include "core/settings.h"
#include "tests/fuzz/target.h"

namespace tutti::fuzz::setting_values {
namespace {

void run(std::string_view input) {
  Input in(input);
  const Setting& setting = settings()[in.value<std::uint16_t>() % settings().size()];
  const std::string name(setting.name), value(in.rest().substr(0, in.rest().find('\0')));
  ::setenv(name.c_str(), value.c_str(), 1);
  try {
    switch (setting.type) {
      case SettingType::text:
        require(setting_text(name) == value || value.empty(), "a text is what it is");
        break;
      case SettingType::integer: {
        const std::int64_t number = setting_integer(name);
        require(number < 0 || value.empty() || value == setting.default_value ||
                    setting_allows(name, static_cast<std::uint64_t>(number)),
                "a number is in its range");
        break;
      }
      case SettingType::bytes:
        require(value.empty() || value == setting.default_value ||
                    setting_allows(name, setting_bytes(name)) ||
                    setting_bytes(name) == parse_bytes(setting.default_value),
                "a size is in its range");
        break;
      case SettingType::seconds:
        require(setting_seconds(name).count() >= 0, "a time is not negative");
        break;
      case SettingType::boolean:
        setting_boolean(name);
        break;
    }
  } catch (const Error& error) {
    require(error.code() == ErrorCode::invalid_argument, "a value is refused as an argument");
    require(std::string_view(error.what()).find(name) != std::string_view::npos,
            "the error names it");
  }
  ::unsetenv(name.c_str());
  accepts(ErrorCode::invalid_argument, [&] { parse_bytes(value); });
}

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (std::uint16_t i = 0; i < settings().size(); ++i) {
    all.push_back(text_of_bytes(i).append(settings()[i].default_value));
  }
  for (const char* const value :
       {"64K", "1.5GiB", "100ms", "0.5", "yes", "-1", "1e400", "9223372036854775807"}) {
    all.push_back(text_of_bytes(static_cast<std::uint16_t>(all.size() * 7)).append(value));
  }
  return all;
}

const Registered target({"setting_values", run, seeds});

}  // namespace
}  // namespace tutti::fuzz::setting_values
