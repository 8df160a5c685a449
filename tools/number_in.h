// Numbers on the command line that have a least and a most. (CLI::Range takes NaN for one that
// lies between.)
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

#include "core/number.h"

namespace tutti {

inline CLI::Validator number_in(double least, double most) {
  return {[least, most](const std::string& text) -> std::string {
            const auto value = parse_number<double>(text);
            if (value && *value >= least && *value <= most) return "";
            return fmt::format("Value {} not in range {:g} to {:g}", text, least, most);
          },
          ""};
}

}  // namespace tutti
