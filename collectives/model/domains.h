// Which ranks run near each other: on cores that share a last-level cache, or on one host. Plans
// are made as if the ranks of a domain had consecutive numbers, and renumbered then: rings and
// trees cross borders as seldom as can be, and the groups of hierarchical algorithms are domains.
// With several hosts that is hosts first, and within each its caches.
#pragma once

#include <functional>
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
  /// All ranks near each other, but numbered in this order for plans: ring neighbours, say.
  static Domains in_order(std::span<const int> ranks);
  /// Runs of 2^k ranks, each on one host and the last perhaps shorter, for the largest k that there
  /// is. They are subtrees of the canonical expression (docs/determinism.md), so a host may sum up
  /// each by itself. On one host: all ranks.
  static Domains subtrees(const Domains& hosts);
  /// The domains of ranks on several hosts. `domain` numbers them within a host. A host that has a
  /// rank without a domain counts as one.
  static Domains on_hosts(std::span<const int> host, std::span<const int> domain);

  /// The domains of some of the ranks, which are numbered anew in this order.
  Domains among(std::span<const int> ranks) const;
  /// These domains, within each of which the ranks are in the order that they have in `finer`.
  Domains refined(const Domains& finer) const;

  int count() const { return count_; }
  bool near(int a, int b) const { return count_ == 1 || domain(a) == domain(b); }
  /// Domains are numbered from 0 on, as their first ranks come.
  int number_of(int rank) const { return count_ == 1 ? 0 : domain(rank); }
  /// Ranks by domain, those with more ranks first; a rank's place there. Where there are several
  /// domains, or an order.
  int rank_at(int place) const { return order_[static_cast<std::size_t>(place)]; }
  int place_of(int rank) const { return places_[static_cast<std::size_t>(rank)]; }
  /// Ranks of each domain but the last, which may have fewer; 0 where they differ more than that.
  int group() const { return group_; }
  /// Ranks of each, as they come by place; none where there is one domain.
  const std::vector<int>& sizes() const { return sizes_; }
  /// Of `ranks` ranks, those of the domain that has the most.
  int most(int ranks) const { return count_ == 1 ? ranks : sizes_.front(); }
  /// How many ranks it was made for; 0: for any number, near each other.
  int ranks() const { return static_cast<int>(of_.size()); }
  friend bool operator==(const Domains&, const Domains&) = default;

 private:
  int domain(int rank) const { return of_[static_cast<std::size_t>(rank)]; }
  /// Ranks by domain, and there by `within`.
  void arrange(const std::function<int(int)>& within);

  int count_ = 1;
  int group_ = 0;
  std::vector<int> sizes_, of_, order_, places_;
};

/// How plans are laid out for ranks on these hosts, with these caches.
inline Domains laid_out(const Domains& hosts, const Domains& caches) {
  return hosts.count() == 1 ? caches : hosts.refined(caches);
}

/// `request` of ranks that are numbered by their places: with domains for groups, unless it says
/// which, or they are none that the algorithm can have.
PlanRequest placed(const Algorithm& algorithm, const PlanRequest& request, const Domains& domains);

/// Rank `rank`'s part of `algorithm`'s plan, with its work divided by domains. A plan with messages
/// of several ranks' blocks stays as it is: those would not be contiguous any more. So does a
/// compressed one: its sums have the order of the ranks' own numbers. Throws as
/// Algorithm::generate.
RankPlan generate(const Algorithm& algorithm, const PlanRequest& request, int rank,
                  const Domains& domains);
/// generate() with an order of ranks for each lane: as many slices of the work, each done by the
/// plan that its domains renumber. Throws also where the algorithm has no lanes (join_slices()).
RankPlan generate(const Algorithm& algorithm, const PlanRequest& request, int rank,
                  std::span<const Domains> lanes);
/// Algorithm::textbook of such a part.
Traffic textbook(const Algorithm& algorithm, const PlanRequest& request, int rank,
                 const Domains& domains);

}  // namespace tutti
