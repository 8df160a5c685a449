// Numbers on the command line that have a least and a most. (CLI::Range takes NaN for one that
// lies between.)
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <utility>

#include "core/number.h"

namespace tutti {

/// `unit`: what it counts, for the error: "seconds".
inline CLI::Validator number_in(double least, double most, std::string unit = "") {
  return {[least, most, unit = std::move(unit)](const std::string& text) -> std::string {
            const auto value = parse_number<double>(text);
            if (value && *value >= least && *value <= most) return "";
            const std::string of_unit = unit.empty() ? "" : " of " + unit;
            return fmt::format("'{}' is no number{} from {:g} to {:g}", text, of_unit, least, most);
          },
          ""};
}

}  // namespace tutti
