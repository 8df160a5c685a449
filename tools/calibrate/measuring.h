// Common parts of the measurements of `tutti calibrate`: a clock, medians, and plans that do one
// thing often or seldom in one call; the difference is the cost of the thing alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "collectives/plan.h"
#include "comm/communicator.h"

namespace tutti {

inline constexpr int kRepeats = 16;  // of a thing in a plan that does it often
inline constexpr int kSamples = 7;

double median(std::vector<double> values);
double time_ns(const std::function<void()>& body);

/// A plan of `ranks` ranks for `collective`; `fill` writes rank r's steps.
std::string plan_text(Collective collective, int ranks, std::uint32_t lanes,
                      const std::function<void(RankPlanBuilder&, int)>& fill,
                      std::uint32_t slots = 1);

/// Between two ranks: one of `calls` calls that both make. They must make as many, so no clock
/// decides how many.
double time_of_call(const std::function<void()>& call, int calls);
/// A signal's way, with the sender's and the receiver's step.
double measure_one_way(Communicator& comm, int calls);
/// The cost of one more signal for each rank, if both send equally many and none waits for another:
/// to send one, and to take one.
double measure_signal(Communicator& comm, int calls);

}  // namespace tutti
