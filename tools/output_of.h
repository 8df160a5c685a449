// Runs another program, and hears what it prints.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tutti {

struct Output {
  static constexpr int kNotFound = 127, kTooLong = 124;
  int status = -1;        // of its exit; 128 + n: signal n
  std::string text;       // what it has printed
  std::string complaint;  // the last line of its standard error
};

/// Kills the program after `patience`. It has nothing to read.
Output output_of(const std::vector<std::string>& program, std::chrono::nanoseconds patience);

/// The same of several programs, side by side.
std::vector<Output> outputs_of(const std::vector<std::vector<std::string>>& programs,
                               std::chrono::nanoseconds patience);

}  // namespace tutti
