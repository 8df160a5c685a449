// A verdict as people read it, and as JSON for programs.
#pragma once

#include <string>
#include <vector>

#include "laboratory/predict/causes.h"
#include "laboratory/predict/verdict.h"

namespace tutti {

struct VerdictReport {
  SpeedVerdict verdict;
  std::vector<Cause> causes;
  Collective collective = Collective::all_reduce;
  int ranks = 1, hosts = 1;
  std::string source, machine;
  std::vector<std::string> guessed;
};

/// The verdict in a line, without its end: "slow: from 64 MiB on 28 GB/s where 216 are expected
/// (7.7 times slower); at least 5 times whatever the doubt".
std::string first_line(const VerdictReport& report);
/// The first line, a line for each span, and the causes with what to look at.
std::string text_of(const VerdictReport& report);
/// One object; docs/verdict.md names its members.
std::string json_of(const VerdictReport& report);

/// What `tutti predict --log` ends with: 0 fine or fast, 1 slow, 3 no verdict.
int exit_status(const SpeedVerdict& verdict);

}  // namespace tutti
