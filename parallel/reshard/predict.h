// How long a plan takes, from the rates of links and memory.
#pragma once

#include <vector>

#include "plan.h"

namespace tutti::parallel::reshard {

struct Rates {
  double link = 12.5e9;    // bytes a second between a host and the others, in each direction
  double memory = 10e9;    // bytes a second that a rank copies
  double latency = 20e-6;  // seconds, of a message between hosts
};

/// In seconds, from the start.
struct Prediction {
  double end = 0;
  std::vector<double> ranks;    // when each has all of its target
  std::vector<double> sending;  // by host: how long its link sends
};

/// A message takes its turn on the link of its sender's host, then on that of its receiver's, in
/// the order of the plan; inside a host, and into its place, the receiver copies it.
Prediction predict(const Plan& plan, const Rates& rates);

}  // namespace tutti::parallel::reshard
