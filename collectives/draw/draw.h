// A plan as a space-time picture (SVG), laid out like a score: time runs to the right, every rank
// has a staff, every lane a line of it. A box is a step, coloured by its kind; an arrow is a
// message. Pointing at a box shows the step's text and its id, rank/lane/step.
#pragma once

#include <cstddef>
#include <string>

#include "collectives/plan.h"

namespace tutti {

/// Plans beyond these are drawn compactly: without labels, tooltips and, where they would only
/// blacken the picture, arrows. The picture says so.
struct DrawLimits {
  static constexpr std::size_t detailed_ranks = 32;
  static constexpr std::size_t detailed_steps = 4'000;
  static constexpr std::size_t compact_arrows = 2'000;
  static constexpr std::size_t compact_ranks = 1'024;  // ranks after these are left out
  // More than these are too many to say when each step runs: some hundred megabytes.
  static constexpr std::size_t operands = 1 << 23;
};

/// Draws any plan, also an unproved one, and marks steps that would wait for ever.
std::string draw_svg(const Plan& plan);

}  // namespace tutti
