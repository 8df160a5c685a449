// Which ranks run near each other: on cores that share a last-level cache. Plans are made as if the
// ranks of a domain had consecutive numbers, and renumbered then: rings and trees cross borders as
// seldom as can be, and the groups of hierarchical algorithms are domains.
#pragma once

#include <span>
#include <vector>

#include "collectives/algorithms.h"

namespace tutti {

class Domains {
 public:
  /// All ranks are near each other, or nobody knows.
  Domains() = default;
  /// The domain of each rank, by any numbers; nobody knows if one of them is negative.
  explicit Domains(std::span<const int> of);
  /// `ranks` ranks in `count` domains, as many in each as can be, neighbours together.
  static Domains even(int ranks, int count);

  /// Those of some of the ranks, which are numbered anew in this order.
  Domains among(std::span<const int> ranks) const;

  int count() const { return count_; }
  bool near(int a, int b) const { return count_ == 1 || domain(a) == domain(b); }
  /// Ranks by domain, those with more ranks first; a rank's place there.
  int rank_at(int place) const { return order_[static_cast<std::size_t>(place)]; }
  int place_of(int rank) const { return places_[static_cast<std::size_t>(rank)]; }
  /// Ranks of each domain but the last, which may have fewer; 0 where they differ more than that.
  int group() const { return group_; }
  /// How many ranks it was made for; 0: for any number, near each other.
  int ranks() const { return static_cast<int>(of_.size()); }

 private:
  int domain(int rank) const { return of_[static_cast<std::size_t>(rank)]; }

  int count_ = 1;
  int group_ = 0;
  std::vector<int> of_, order_, places_;
};

/// The same request, of ranks that are numbered by their places: with domains for groups, unless it
/// says which.
PlanRequest placed(const PlanRequest& request, const Domains& domains);

/// Rank `rank`'s part of `algorithm`'s plan, with its work divided by domains. A plan with messages
/// of several ranks' blocks stays as it is: those would not be contiguous any more. Throws as
/// Algorithm::generate.
RankPlan generate(const Algorithm& algorithm, const PlanRequest& request, int rank,
                  const Domains& domains);

}  // namespace tutti
