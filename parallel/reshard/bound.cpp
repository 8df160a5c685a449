// The least that the busiest link carries.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "parallel/reshard/partition.h"
#include "parallel/reshard/verify.h"

namespace tutti::parallel::reshard {
namespace {

using Hosts = std::set<int>;

/// Bytes of all cells that the same hosts have and the same others need.
using Needs = std::map<std::pair<Hosts, Hosts>, std::uint64_t>;

Hosts hosts_of(std::span<const std::uint32_t> numbers, std::span<const Piece> pieces,
               const std::vector<int>& hosts) {
  Hosts set;
  for (const std::uint32_t p : numbers) {
    set.insert(hosts[index(pieces[p].rank)]);
  }
  return set;
}

/// Sets of hosts by number: there are few, and many parts have the same.
class HostSets {
 public:
  std::size_t number_of(const Hosts& hosts) {
    const auto [found, is_new] = numbers_.emplace(hosts, sets_.size());
    if (is_new) sets_.push_back(hosts);
    return found->second;
  }
  const Hosts& operator[](std::size_t number) const { return sets_[number]; }

 private:
  std::map<Hosts, std::size_t> numbers_;
  std::vector<Hosts> sets_;
};

Needs needs_of(const Layout& from, const Layout& to, const std::vector<int>& hosts) {
  HostSets sets;
  std::map<std::pair<std::size_t, std::size_t>, std::uint64_t> bytes;  // by holders, needers
  std::unordered_map<std::string_view, const TensorLayout*> sources;
  for (const TensorLayout& t : from.tensors) sources[t.name] = &t;
  for (const TensorLayout& target : to.tensors) {
    const auto found = sources.find(target.name);
    if (found == sources.end()) continue;
    const TensorLayout& source = *found->second;
    const std::uint64_t element = size_of(travel_type(source.type, target.type));
    std::vector<Part> held = partition(source.pieces);
    const PartIndex holding(held);
    std::vector<std::size_t> holders;
    for (const Part& have : held) {
      holders.push_back(sets.number_of(hosts_of(have.pieces, source.pieces, hosts)));
    }
    for (const Part& need : partition(target.pieces)) {
      const std::size_t needers = sets.number_of(hosts_of(need.pieces, target.pieces, hosts));
      holding.each(need.box, [&](const Part& have) {
        const std::size_t of = holders[static_cast<std::size_t>(&have - held.data())];
        bytes[{of, needers}] += element * intersection(need.box, have.box).elements();
      });
    }
  }
  Needs needs;
  for (const auto& [numbers, size] : bytes) {
    const Hosts &holders = sets[numbers.first], &needers = sets[numbers.second];
    Hosts lack;
    std::ranges::set_difference(needers, holders, std::inserter(lack, lack.end()));
    if (!lack.empty()) needs[{holders, lack}] += size;
  }
  return needs;
}

bool is_in(const Hosts& inner, const Hosts& outer) { return std::ranges::includes(outer, inner); }

Hosts both(const Hosts& a, const Hosts& b) {
  Hosts all = a;
  all.insert(b.begin(), b.end());
  return all;
}

/// What leaves from the set of hosts at least, each host its share.
std::uint64_t least_of(const Needs& needs, const Hosts& set) {
  std::uint64_t bytes = 0;
  for (const auto& [who, size] : needs) {
    if (!is_in(who.first, set)) continue;
    bytes += size;
    // Others may pass on what they have received, if they are outside of the set.
    if (is_in(who.second, set)) bytes += size * (who.second.size() - 1);
  }
  return bytes / set.size();
}

/// The sets that limit a plan most are among these, or unions of more of them.
std::set<Hosts> sets_of(const Needs& needs) {
  constexpr std::size_t kMostForPairs = 64;
  std::set<Hosts> single;
  Hosts all;
  for (const auto& [who, size] : needs) {
    single.insert(who.first);
    if (who.second.size() > 1) single.insert(both(who.first, who.second));
    all = both(all, who.second.size() > 1 ? both(who.first, who.second) : who.first);
  }
  std::set<Hosts> sets = single;
  if (!all.empty()) sets.insert(all);
  if (single.size() > kMostForPairs) return sets;
  for (const Hosts& a : single) {
    for (const Hosts& b : single) sets.insert(both(a, b));
  }
  return sets;
}

}  // namespace

std::uint64_t link_bound(const Layout& from, const Layout& to, const std::vector<int>& hosts) {
  const Needs needs = needs_of(from, to, hosts);
  std::map<int, std::uint64_t> received;
  for (const auto& [who, size] : needs) {
    for (const int h : who.second) received[h] += size;
  }
  std::uint64_t bound = 0;
  for (const auto& [h, bytes] : received) bound = std::max(bound, bytes);
  for (const Hosts& set : sets_of(needs)) bound = std::max(bound, least_of(needs, set));
  return bound;
}

}  // namespace tutti::parallel::reshard
