// The table of algorithms: their collectives, their rank counts, and their costs. The communicator,
// `tutti plan` and the tests read this table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/plan.h"
#include "collectives/verify.h"

namespace tutti {

/// The arguments of a generator.
struct PlanRequest {
  Collective collective = Collective::all_reduce;
  int ranks = 1;
  int root = 0;
  std::uint32_t lanes = 1;  // lanes that share the work, where the algorithm can (ring, chain)
  int group = 0;       // hierarchical: ranks per group; 0: the divisor of `ranks` nearest its root
  bool scales = true;  // reductions: for every operator; false: for those alone that do not scale
                       // inputs (neither avg nor pre_multiplied_sum), which saves copies
  std::vector<int> groups = {};  // hierarchical: ranks of each group, if that is no rule as `group`
  /// Reductions: the sum of a group, then the groups' sums in their order, and a wide plan, so that
  /// the bits are invariant.
  bool in_order = false;
};

/// Whether an algorithm for this collective that is composed of two needs groups of equal size.
constexpr bool needs_equal_groups(Collective c) {
  return c == Collective::all_gather || c == Collective::reduce_scatter;
}

/// What a call lets ranks of a host address of each other's memory, more in each line.
enum class Access : std::uint8_t {
  none,     // nothing: all data from rank to rank go through slots
  tmp,      // memory of Tutti's own, by loads and stores
  copies,   // also the buffers, by copies that the kernel makes (transport/host/cma.h)
  windows,  // also the buffers, by loads and stores
};
/// The least that a plan needs which addresses other ranks' memory, and of that tmp alone.
constexpr Access access_needed(bool windows, bool tmp_alone) {
  return !windows ? Access::none : tmp_alone ? Access::tmp : Access::copies;
}

/// The most messages that follow each other: between ranks of one group, and between groups (all
/// messages, if the algorithm has no groups).
struct Hops {
  int inside = 0;
  int across = 0;
};

struct Algorithm {
  /// The groups of ranks (PlanRequest::groups) that it works in: none, of any sizes, or of one
  /// size.
  enum class Groups : std::uint8_t { none, any, equal };

  Collective collective;
  std::string_view name;     // "ring"
  std::string_view summary;  // one line for `tutti plan list`
  bool windows = false;      // addresses other ranks' memory: of all, with links for signals alone,
                             // or of those of its group, with data on the links across
  bool tmp_alone = false;    // of that, it addresses tmp alone
  bool lanes = false;        // honours PlanRequest::lanes > 1
  bool follows_order = false;  // each rank sends to the next one in its order alone, so lanes may
                               // have orders of their own
  Groups groups = Groups::none;
  bool invariant = false;  // reductions: each result is the canonical expression, in plans for
                           // Domains::subtrees() with PlanRequest::in_order
  /// Rank `rank`'s part. Throws Error(invalid_argument) for a request that it cannot serve.
  RankPlan (*generate)(const PlanRequest& request, int rank);
  /// The textbook's traffic of rank `rank`, in chunks per tile.
  Traffic (*textbook)(const PlanRequest& request, int rank);
  /// The messages that follow each other in one tile.
  Hops (*hops)(const PlanRequest& request);
  bool compressed = false;  // Format::compressed: serves the calls that ask for it, and no other

  /// The least that a call must give it.
  Access needs() const { return access_needed(windows, tmp_alone); }
};

/// All algorithms, ordered by collective. Of those with about the same predicted time, the choice
/// takes the first.
std::span<const Algorithm> algorithms();
/// nullptr if there is none.
const Algorithm* find_algorithm(Collective c, std::string_view name);

/// All ranks' parts.
Plan generate_plan(const Algorithm& algorithm, const PlanRequest& request);
/// The whole plan, whose parts are made on request. Throws as Algorithm::generate does.
PlanParts plan_parts(const Algorithm& algorithm, const PlanRequest& request);

}  // namespace tutti
