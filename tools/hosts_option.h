// --hosts: the host of each rank, for the commands that look at plans.
#pragma once

#include <string>
#include <vector>

#include "collectives/model/domains.h"

namespace CLI {
class App;
}

namespace tutti {

class HostsOption {
 public:
  /// Adds --hosts and --in-turn. This object must stay where it is while the command line is
  /// parsed.
  void add_to(CLI::App& command);

  bool is_given() const { return !text_.empty(); }
  /// The host of each rank. Throws Error(invalid_argument), also if `ranks` are not as many (0:
  /// any).
  std::vector<int> of_ranks(int ranks) const;

 private:
  std::string text_;
  bool in_turn_ = false;
};

}  // namespace tutti
