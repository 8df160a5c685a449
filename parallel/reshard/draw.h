// A plan as a picture (SVG): the ranks that hold the source on the left, those that get the target
// on the right, both by host, and between two ranks a band as wide as the bytes that go there.
#pragma once

#include <string>

#include "plan.h"

namespace tutti::parallel::reshard {

/// Throws Error(unproven_plan) for a plan that is not right, and Error(invalid_argument) for more
/// than 256 ranks or 20,000 pairs of ranks.
std::string draw_svg(const Layout& from, const Layout& to, const Plan& plan);

}  // namespace tutti::parallel::reshard
