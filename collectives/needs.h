// The resources that a plan needs. A check of a user's plan looks once at all ranks' parts. So all
// ranks alike refuse a plan that cannot run, before any rank has begun.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "collectives/cut.h"
#include "collectives/plan.h"

namespace tutti {

/// The needs of all ranks.
struct PlanNeeds {
  DataPath path;
  std::uint32_t channels = 0;    // one more than the largest channel's number
  std::uint32_t lane_links = 0;  // ends of links that a lane has
  std::uint32_t operands = 0;    // of a step
};

PlanNeeds needs_of(const Plan& plan);

/// Where the data of these parts go, all together.
DataPath path_of(std::span<const RankPlan> parts);

/// Makes a proved plan ask for no more than it uses, and changes nothing about what it does. The
/// links from one rank to another get the channels 0, 1, ...; `slots` and `widest` become what
/// the proof has used: as many slots as a link has messages are enough, and no slot need be wider
/// than the widest message.
void tighten(Plan& plan);

/// Why no communicator can run this plan though it is proved, in words; "" if one can.
std::string unfit_to_run(const Plan& plan);

}  // namespace tutti
