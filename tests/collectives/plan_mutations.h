// Ways to spoil a plan: what a generator, or a person who edits a plan, could get wrong in one
// place.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "collectives/plan.h"

namespace tutti::test {

/// A place in a plan. Kinds that need less than this ignore the rest.
struct Spot {
  int rank = 0;
  std::uint32_t lane = 0;
  std::size_t step = 0;
  std::size_t operand = 0;  // of the step: destinations first
};

struct Mutation {
  std::string_view name;
  enum class Needs : std::uint8_t { plan, step, operand } needs;
  /// No plan without anything superfluous survives this. The others can hit something that does not
  /// matter: a slot to spare, an order that another message secures as well, a chunk that is
  /// overwritten.
  bool is_always_wrong;
  /// Changes the plan; false where this kind has nothing to change. `variant`: which way, 0 or 1.
  bool (*apply)(Plan& plan, const Spot& spot, int variant);
};

std::span<const Mutation> mutations();

}  // namespace tutti::test
