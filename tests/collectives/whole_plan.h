// All ranks' parts of a plan, made by one function, as one plan: so that it can be changed.
#pragma once

#include "collectives/algorithms.h"

namespace tutti::test {

inline Plan whole_plan(const PlanParts& parts) {
  Plan plan{parts.header, {}};
  for (int r = 0; r < parts.header.ranks; ++r) plan.ranks.push_back(parts.part(r));
  return plan;
}

}  // namespace tutti::test
