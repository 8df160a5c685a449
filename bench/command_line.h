// Describes an error of a program's command line in words; the parser's own words say how often
// things are "required".
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

namespace tutti {

inline std::string usage_error(const CLI::Error& error) {
  const std::string text = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) == nullptr) return text;
  const std::string name = text.substr(0, text.find(':'));
  if (text.find(": At Most 1 required but") != std::string::npos) {
    return fmt::format("{} is given more than once", name);
  }
  if (text.find(": 1 required ") != std::string::npos) return fmt::format("{} has no value", name);
  return text;
}

}  // namespace tutti
