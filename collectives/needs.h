// The resources that a plan needs. A check of a user's plan looks once at all ranks' parts. So all
// ranks alike refuse a plan that cannot run, before any rank has begun.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/plan.h"

namespace tutti {

/// The needs of all ranks.
struct PlanNeeds {
  bool windows = false;          // some step addresses another rank's memory,
  bool buffers = false;          // and some step its in or out
  bool link_data = false;        // links carry data, not only signals
  std::uint32_t channels = 0;    // one more than the largest channel's number
  std::uint32_t tmp_chunks = 0;  // of the rank that has the most
  std::uint32_t lane_links = 0;  // ends of links that a lane has
  std::uint32_t operands = 0;    // of a step
};

PlanNeeds needs_of(const Plan& plan);

/// Makes a proved plan ask for no more than it uses, and changes nothing about what it does. The
/// links from one rank to another get the channels 0, 1, ...; `slots` and `widest` become what
/// the proof has used: as many slots as a link has messages are enough, and no slot need be wider
/// than the widest message.
void tighten(Plan& plan);

/// Why no communicator can run this plan though it is proved, in words; "" if one can.
std::string unfit_to_run(const Plan& plan);

}  // namespace tutti
