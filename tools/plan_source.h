// The plan of a `tutti plan` command: an algorithm's, for a number of ranks, or a file's.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/plan.h"
#include "tools/hosts_option.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tutti {

/// Throws Error(invalid_argument), which says which collectives there are, unless `name` is one
/// that has an algorithm.
Collective collective_named(const std::string& name);

class PlanSource {
 public:
  /// Adds COLLECTIVE --algorithm --ranks --hosts --root --lanes --group --invariant and --file.
  /// This object must stay where it is while the command line is parsed.
  void add_options(CLI::App& command);

  bool is_file() const { return !file_.empty(); }
  bool is_invariant() const { return invariant_; }
  Plan load_file() const;
  /// Each rank's part when it is asked for.
  PlanParts parts() const;
  /// The whole plan at once, if it is small enough to be drawn.
  Plan load_for_drawing() const;
  /// Refuses a plan that is too large for a proof, by the textbook's traffic.
  void check_provable() const;
  /// The textbook's traffic of a rank. Not for a file.
  std::function<Traffic(int rank)> textbook() const;
  /// The hosts of a plan's ranks; one by default.
  Domains hosts(int ranks) const { return Domains(hosts_.of_ranks(ranks)); }

 private:
  const Algorithm& algorithm() const;
  PlanRequest request() const;
  Domains layout(int ranks) const;

  std::vector<CLI::Option*> of_an_algorithm_;  // that make no sense with a file
  std::string collective_;
  std::string algorithm_;
  std::string file_;
  HostsOption hosts_;
  int ranks_ = 0;
  int root_ = 0;
  std::uint32_t lanes_ = 1;
  int group_ = 0;
  bool invariant_ = false;
};

}  // namespace tutti
