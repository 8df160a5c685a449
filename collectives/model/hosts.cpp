#include "collectives/model/hosts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <vector>

#include "collectives/model/predict.h"
#include "collectives/needs.h"
#include "collectives/text/text.h"

namespace tutti {
namespace {

const Operand* first_across(const RankPlan& plan, const Domains& hosts) {
  const auto found = std::ranges::find_if(plan.operands, [&](const Operand& o) {
    return o.is_remote() && !hosts.near(plan.rank, o.rank);
  });
  return found == plan.operands.end() ? nullptr : &*found;
}

/// Of `ranks`, the first two, the middle one and the last of each host, and `root`.
std::set<int> some_of_each_host(std::span<const int> ranks, int root, const Domains& hosts) {
  std::map<int, std::vector<int>> by_host;
  for (const int r : ranks) by_host[hosts.number_of(r)].push_back(r);
  std::set<int> some{root};
  for (const auto& [host, there] : by_host) {
    some.insert({there.front(), there[std::min<std::size_t>(1, there.size() - 1)],
                 there[there.size() / 2], there.back()});
  }
  return some;
}

/// `size(part, step, sends)`: of each message that it sends, or takes.
template <class Size>
std::vector<Traffic> count_across(const PlanParts& plan, const Domains& hosts, Size&& size) {
  std::vector<Traffic> by_host(static_cast<std::size_t>(hosts.count()));
  if (hosts.count() == 1) return by_host;
  for (int rank = 0; rank < plan.header.ranks; ++rank) {
    const RankPlan part = plan.part(rank);
    Traffic& mine = by_host[static_cast<std::size_t>(hosts.number_of(rank))];
    const auto across = [&](std::span<const Operand> side) {
      return static_cast<std::uint64_t>(std::ranges::count_if(
          side, [&](const Operand& o) { return o.is_link() && !hosts.near(rank, o.rank); }));
    };
    for (const auto& lane : part.lanes) {
      for (const Step& step : lane) {
        if (step.count == 0) continue;
        if (const auto links = across(part.destinations(step))) {
          mine.sent += links * size(part, step, true);
        }
        if (const auto links = across(part.sources(step))) {
          mine.received += links * size(part, step, false);
        }
      }
    }
  }
  return by_host;
}

}  // namespace

bool addresses_across(const RankPlan& plan, const Domains& hosts) {
  return first_across(plan, hosts) != nullptr;
}

std::vector<int> typical_ranks(int ranks, int root, const Domains& hosts) {
  std::vector<int> all(static_cast<std::size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  if (ranks <= kMostSimulatedRanks) return all;
  if (hosts.count() == 1) {
    const std::set<int> some{0, 1, ranks / 2, ranks - 1, root};
    return {some.begin(), some.end()};
  }
  std::set<int> numbers{hosts.number_of(root)};
  const std::vector<int>& sizes = hosts.sizes();
  int place = 0;  // of the first rank of those hosts
  for (auto first = sizes.begin(); first != sizes.end();) {
    const auto next = std::find_if(first, sizes.end(), [&](int size) { return size != *first; });
    const int count = static_cast<int>(next - first);
    for (const int h : {0, count / 2, count - 1}) {
      numbers.insert(hosts.number_of(hosts.rank_at(place + h * *first)));
    }
    place += count * *first;
    first = next;
  }
  std::erase_if(all, [&](int r) { return !numbers.contains(hosts.number_of(r)); });
  return all;
}

Use use_of(const Algorithm& algorithm, const std::vector<RankPlan>& parts, const Domains& hosts) {
  Use use;
  if (!algorithm.windows) return use;
  use.path = path_of(parts);
  if (!use.path.shares_tmp()) use.path.tmp_chunks = 0;  // it is little
  use.across = std::ranges::any_of(
      parts, [&](const RankPlan& part) { return addresses_across(part, hosts); });
  return use;
}

Use use_of(const Algorithm& algorithm, const PlanRequest& request, const Domains& layout,
           const Domains& hosts) {
  std::vector<RankPlan> parts;
  if (!algorithm.windows) return {};
  // Each rank asks, so a few ranks of a host stand for all of it.
  for (const int rank :
       some_of_each_host(typical_ranks(request.ranks, request.root, hosts), request.root, hosts)) {
    parts.push_back(generate(algorithm, request, rank, layout));
    // Most of those that cannot run are known by their first part.
    if (addresses_across(parts.back(), hosts)) break;
  }
  return use_of(algorithm, parts, hosts);
}

std::string unreachable(const PlanParts& plan, const Domains& hosts) {
  for (int rank = 0; rank < plan.header.ranks && hosts.count() > 1; ++rank) {
    const RankPlan part = plan.part(rank);
    const Operand* const o = first_across(part, hosts);
    if (o == nullptr) continue;
    return fmt::format(
        "rank {} on host {} addresses {}, but rank {} is on host {}: a host's memory is mapped by "
        "its own ranks alone, so links must carry what goes to another",
        rank, hosts.number_of(rank), to_text(*o, 1), o->rank, hosts.number_of(o->rank));
  }
  return {};
}

std::string unreachable(const Plan& plan, const Domains& hosts) {
  return unreachable(
      PlanParts{plan.header, [&](int r) { return plan.ranks[static_cast<std::size_t>(r)]; }},
      hosts);
}

std::vector<Traffic> chunks_across(const PlanParts& plan, const Domains& hosts) {
  return count_across(plan, hosts, [](const RankPlan&, const Step& step, bool) {
    return std::uint64_t{step.count};
  });
}

std::vector<Traffic> bytes_across(const PlanParts& plan, const Domains& hosts, const Tiling& tiling,
                                  std::size_t block, DataType type) {
  const std::uint32_t pieces = plan.header.pieces;
  return count_across(plan, hosts, [&](const RankPlan& part, const Step& step, bool sends) {
    std::uint64_t elements = 0;
    for (std::uint32_t i = 0; i < step.count; ++i) {
      const auto in_tile = [&](std::size_t tile) {
        return chunk_extent(tiling, tile, block, size_of(type), pieces,
                            (step.shape_chunk + i) % pieces)
            .count;
      };
      elements += in_tile(0) * (tiling.tiles - 1) + in_tile(tiling.tiles - 1);
    }
    const bool wide = sends ? sends_wide(part, step) : takes_wide(step);
    return elements * size_of(type) * (wide ? widening(plan.header, type) : 1);
  });
}

std::uint64_t sent(const std::vector<Traffic>& by_host) {
  std::uint64_t all = 0;
  for (const Traffic& t : by_host) all += t.sent;
  return all;
}

}  // namespace tutti
