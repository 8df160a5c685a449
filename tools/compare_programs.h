// The programs that `tutti compare` starts (bench/peers, bench/limits): where they are, which are
// missing and why, and one run of one of them.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tools/compare_report.h"

namespace tutti::compare {

struct Program {
  std::string name;                  // "tutti", "openmpi", ..., "limit"
  std::vector<std::string> command;  // the launcher, its arguments, the program
  std::string missing;               // why it cannot be run, and what to do; empty: it can
};

/// The peers that Tutti can be compared with.
std::vector<std::string> peer_names();

/// Tutti, the peers, the limit, in the order in which they take turns. `folder`: where the
/// programs are; empty: beside the `tutti` command that is running.
std::vector<Program> find_programs(std::filesystem::path folder,
                                   const std::vector<std::string>& peers, int ranks);

/// Runs it once, with `--folder` (a new, private one) added to `arguments`. Throws Error(system)
/// with what it wrote to stderr if it fails, Error(aborted) after Ctrl-C.
Output run(const Program& program, const std::vector<std::string>& arguments);

}  // namespace tutti::compare
