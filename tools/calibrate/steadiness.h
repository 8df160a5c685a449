// Whether a machine was idle while it was measured: what else ran there, and whether rounds of one
// measurement agree. `tutti calibrate` says so, as constants of a busy machine mislead the choice
// of algorithms for as long as their file is there.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/model/machine.h"

namespace tutti {

/// What all processes but this one and its children have used of the host's cores since this was
/// made.
class OtherLoad {
 public:
  OtherLoad();
  /// In cores: 1.5 is one and a half all the time. None: the system does not tell.
  std::optional<double> cores() const;

 private:
  struct Times {
    double wall = 0, all = 0, own = 0;  // in seconds; of all cores and processes, and of this one
  };
  static std::optional<Times> now();

  std::optional<Times> start_;
};

/// The constants that the rounds do not agree on: the middle half of their values lies apart by
/// more than a factor of two. With fewer than three rounds there is no middle: none.
std::vector<std::string_view> unsteady_constants(const std::vector<Machine>& rounds);

/// What to say to the user; "": the machine was idle, as far as one can tell.
std::string warning_of_load(std::optional<double> other_cores, const std::vector<Machine>& rounds);

}  // namespace tutti
