// Verdicts as people read them, and as JSON for programs: on a table, and on all of a log.
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
  std::string refused;  // why the table was not judged; else empty
};

/// The verdict in a line, without its end: "slow: from 64 MiB on 28 GB/s where 216 are expected
/// (7.7 times slower); at least 5 times whatever the doubt".
std::string first_line(const VerdictReport& report);
/// The first line, a line for each span, and the causes with what to look at.
std::string text_of(const VerdictReport& report);
/// "slow: 1 of 3 tables", and a line for each.
std::string summary_of(const std::vector<VerdictReport>& tables);
/// One object; docs/verdict.md names its members. Of several tables, an object with all of them.
std::string json_of(const std::vector<VerdictReport>& tables);

/// What `tutti predict --log` ends with: 0 fine or fast, 1 slow, 3 no verdict; of several tables 1
/// if one is slow, and 3 if one has no verdict.
int exit_status(const SpeedVerdict& verdict);
int exit_status(const std::vector<VerdictReport>& tables);

}  // namespace tutti
