// Whole plans as text (docs/plans.md). A communicator reads plans, and names their steps in errors
// (text.h); programs that write plans are tools, so this is no part of the library.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "collectives/plan.h"

namespace tutti {

/// The whole plan. Throws Error(invalid_argument) if the algorithm's name is not one word of at
/// most 64 letters, digits and _ - . (the reader could not read it).
std::string to_text(const Plan& plan);
/// Writes the plan piece by piece: `write` gets the header, then one rank's part at a time.
void write_text(const PlanParts& plan, const std::function<void(std::string_view)>& write);
/// The header and one rank's part, for a person who does not want the other 9,999.
std::string to_text(const RankPlan& rank);

}  // namespace tutti
