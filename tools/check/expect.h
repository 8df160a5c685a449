// What ranks on processors should reach: the cost model with this machine's constants, and between
// hosts the line rate of its fastest port.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/model/choose.h"

namespace tutti::check {

/// Times of a collective on a number of ranks, each on its host.
class Expectation {
 public:
  /// `ranks_of`: of each host. Throws Error(invalid_argument) where nothing can do that.
  Expectation(Collective collective, const std::vector<int>& ranks_of);

  /// us; `bytes` as nccl-tests counts them.
  double us(std::int64_t bytes);
  /// Where the constants come from.
  const std::string& origin() const { return origin_; }
  /// Measured on this machine, and not assumed.
  bool calibrated() const { return calibrated_; }
  /// Gbit/s of the fastest port that is up; 0: one host, or none says its speed.
  double line_rate() const { return line_rate_; }

 private:
  Platform platform_of(const std::vector<int>& ranks_of);

  Collective collective_;
  std::string origin_;
  bool calibrated_ = false;
  double line_rate_ = 0;
  Chooser chooser_;
};

}  // namespace tutti::check
