// Which host sends how much over its link, so that the busiest link carries as little as can be.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::parallel::reshard {

/// Bytes that some hosts have and others need. Hosts are numbers; each list ascends.
struct Demand {
  std::vector<int> holders, needers;  // hosts, none of them in both
  std::uint64_t bytes = 0;            // that each needer has to receive
};

/// What hosts send of a demand.
struct DemandShare {
  std::vector<std::uint64_t> holders;  // bytes, by place in Demand::holders
  std::vector<std::uint64_t> relays;   // of needers that pass on what they have received
};

/// The least largest number of bytes that a host sends, up to half a per cent, is found by
/// bisection; for each limit a maximum flow tells whether it suffices. A needer passes each byte on
/// once at most, and only where holders alone would be the busiest links.
std::vector<DemandShare> share_links(std::span<const Demand> demands, int hosts);

}  // namespace tutti::parallel::reshard
