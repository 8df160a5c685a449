// Numbers on the command line that have a least and a most. (CLI::Range takes NaN for one that
// lies between.)
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <string>

namespace tutti {

inline CLI::Validator number_in(double least, double most) {
  return {[least, most](const std::string& text) -> std::string {
            double value = 0;
            const char* const end = text.data() + text.size();
            const auto [last, error] = std::from_chars(text.data(), end, value);
            if (error == std::errc() && last == end && value >= least && value <= most) return "";
            return fmt::format("Value {} not in range {:g} to {:g}", text, least, most);
          },
          ""};
}

}  // namespace tutti
