// The verdict of `tutti check`, from measured times and expected ones, in words and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/check/measure.h"

namespace tutti::check {

enum class Speed { fine, slow, fast, none };

struct CheckedSize {
  std::int64_t bytes = 0;
  double measured = 0, expected = 0;  // us
  double busbw = 0;                   // GB/s, as measured
  double ratio() const { return measured / expected; }
};

struct Check {
  std::string collective, origin;
  int ranks = 1, hosts = 1;
  double band = 2;       // times slower that is still fine
  double line_rate = 0;  // Gbit/s
  bool calibrated = false;
  std::vector<CheckedSize> sizes;
  HostLoad load;
};

/// Slow where two neighbouring sizes are slower than the band, or the only one is.
Speed verdict_of(const Check& check);
/// What was seen that makes ranks slow, each with what to do; the most likely first.
std::vector<std::string> causes_of(const Check& check);

std::string text_of(const Check& check);
std::string json_of(const Check& check);
/// 0 fine, 1 slow, 3 no verdict.
int exit_status(Speed speed);

}  // namespace tutti::check
