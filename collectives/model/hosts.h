// What a plan needs of hosts: which ranks' memory its steps address, which is possible inside a
// host alone, and what crosses from one host to another.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/cut.h"
#include "collectives/model/domains.h"
#include "core/types.h"

namespace tutti {

/// Whether one rank's part addresses memory of a rank on another host.
bool addresses_across(const RankPlan& plan, const Domains& hosts);

/// Ranks that stand for all: their parts of a plan show what all parts do. To make all parts takes
/// a time that grows with the square of the ranks. So of many ranks these are the ranks of the
/// root's host, and of the first, the middle and the last one of the hosts that have equally many;
/// without hosts, a few.
std::vector<int> typical_ranks(int ranks, int root, const Domains& hosts);

/// What parts of an algorithm's plan use together: these, or those of typical ranks. The same on
/// all ranks, as all look at the same parts; at none of an algorithm without windows.
struct Use {
  DataPath path;
  bool across = false;  // it addresses memory of another host, and so cannot run
};
Use use_of(const Algorithm& algorithm, const std::vector<RankPlan>& parts, const Domains& hosts);
Use use_of(const Algorithm& algorithm, const PlanRequest& request, const Domains& layout,
           const Domains& hosts);

/// Why the plan cannot run on these hosts, in words; "" where it can.
std::string unreachable(const PlanParts& plan, const Domains& hosts);
std::string unreachable(const Plan& plan, const Domains& hosts);

/// What the ranks of each host send over links to other hosts, and receive from there: in chunks of
/// one tile, ...
std::vector<Traffic> chunks_across(const PlanParts& plan, const Domains& hosts);
/// ... or in bytes of a call that is cut like this, with blocks of `block` elements (of a
/// compressed plan before it compresses them).
std::vector<Traffic> bytes_across(const PlanParts& plan, const Domains& hosts, const Tiling& tiling,
                                  std::size_t block, DataType type);
/// What the hosts send, all together.
std::uint64_t sent(const std::vector<Traffic>& by_host);

}  // namespace tutti
