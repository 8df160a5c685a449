// Composing two algorithms: one among the ranks of a group, one across groups.
#pragma once

#include "collectives/algorithms.h"

namespace tutti::algorithm {

/// An algorithm for a collective.
struct Part {
  RankPlan (*generate)(const PlanRequest& request, int rank) = nullptr;
  Traffic (*textbook)(const PlanRequest& request, int rank) = nullptr;
  int (*hops)(int ranks) = nullptr;
};

/// One algorithm for each collective that a composition uses; others may be missing.
struct Family {
  Part all_reduce, all_gather, reduce_scatter, broadcast, reduce;
};

/// request.collective by `inner` inside of groups of request.group ranks and `outer` across them;
/// `name` goes into the header. Throws Error(invalid_argument) for other collectives, and for
/// groups of unequal size if that matters (all_gather, reduce_scatter).
RankPlan compose_hierarchical(const PlanRequest& request, std::string_view name,
                              const Family& inner, const Family& outer, int rank);
/// The sum of the parts' textbooks.
Traffic hierarchical_traffic(const PlanRequest& request, const Family& inner, const Family& outer,
                             int rank);
Hops hierarchical_hops(const PlanRequest& request, const Family& inner, const Family& outer);

}  // namespace tutti::algorithm
