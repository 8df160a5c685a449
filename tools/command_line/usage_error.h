// Describes an error of a program's command line in words; the parser's own words say how often
// things are "required", and call words values that are out of a range. A header alone, as programs
// of other products use it, too.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/nearest.h"
#include "core/number.h"

namespace tutti {

/// An option that `command` does not have; and which one was meant.
inline std::string unknown_option_text(const CLI::App& command, std::string_view word) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return fmt::format("there is no option '{}'{}", word,
                     did_you_mean(word.substr(0, word.find('=')), {names.begin(), names.end()}));
}

/// `command`: the one whose command line it is.
inline std::string usage_error(const CLI::App& command, const CLI::Error& error) {
  const std::string text = error.what();
  const std::string name = text.substr(0, text.find(':'));
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    std::istringstream words(text.substr(text.find(": ") + 2));
    for (std::string word; words >> word;) {
      if (word.starts_with('-')) return unknown_option_text(command, word);
    }
  }
  // CLI::Range: "--ranks: Value two not in range 1 to 100".
  const std::size_t value = text.find(": Value "), range = text.find(" not in range ");
  if (value != std::string::npos && range != std::string::npos && value + 8 < range) {
    const std::string word = text.substr(value + 8, range - value - 8);
    if (!parse_number<double>(word)) {
      return fmt::format("{}: '{}' is no number; it takes one from {}", name, word,
                         text.substr(range + 14));
    }
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) == nullptr) return text;
  if (text.find(": At Most 1 required but") != std::string::npos) {
    return fmt::format("{} is given more than once", name);
  }
  if (text.find(": 1 required ") != std::string::npos) return fmt::format("{} has no value", name);
  return text;
}

}  // namespace tutti
