// How a plan comes about.
//
// 1. Each tensor is cut into cells: boxes that the same pieces of `from` have, and the same pieces
//    of `to` need.
// 2. What a rank has itself it copies. What its host has it gets from a rank of the host.
// 3. What its host lacks comes over the link, once for the host. Cells that the same hosts have and
//    the same hosts need form a demand; share_links() says which host sends how much of each.
//    Their boxes are cut up so that the shares come out. Of a cell that several ranks of the host
//    need, one gets it and the others copy it from there.
// 4. These hops are gathered into messages (message_maker.h).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "parallel/reshard/link_share.h"
#include "parallel/reshard/message_maker.h"
#include "parallel/reshard/partition.h"
#include "parallel/reshard/plan.h"

namespace tutti::parallel::reshard {
namespace {

/// A piece by its rank and number.
struct Held {
  int rank = 0;
  std::uint32_t piece = 0;
};

/// A part of a tensor that the same pieces of `from` have, and the same pieces of `to` need.
struct Cell {
  std::uint32_t tensor = 0;
  Box box;
  std::span<const Held> holders, needers;
};

/// Lists of hosts by number: there are few, and many cells have the same.
class HostLists {
 public:
  std::size_t number_of(std::vector<int> hosts) {
    std::ranges::sort(hosts);
    hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
    const auto [found, is_new] = numbers_.emplace(hosts, lists_.size());
    if (is_new) lists_.push_back(std::move(hosts));
    return found->second;
  }
  const std::vector<int>& operator[](std::size_t number) const { return lists_[number]; }

 private:
  std::map<std::vector<int>, std::size_t> numbers_;
  std::vector<std::vector<int>> lists_;
};

/// What the same hosts have and the same hosts need, and which of them sends how much.
struct Link {
  Demand demand;
  DemandShare share;
  std::uint64_t most = 0;  // bytes of a box, so that the shares come out
};

/// Boxes of `most` elements at most, cut along the outermost dimensions.
std::vector<Box> cut_up(const Box& box, std::uint64_t most) {
  const std::uint64_t all = box.elements();
  if (all <= most) return {box};
  std::size_t d = 0;
  while (box[d].size() == 1) ++d;
  const std::uint64_t inner = all / box[d].size();
  const std::uint64_t rows = std::max<std::uint64_t>(most / inner, 1);
  const std::uint64_t parts = (box[d].size() + rows - 1) / rows;
  std::vector<Box> boxes;
  for (std::uint64_t p = 0; p < parts; ++p) {
    Box part = box;
    part[d] = {box[d].begin + box[d].size() * p / parts,
               box[d].begin + box[d].size() * (p + 1) / parts};
    for (const Box& b : cut_up(part, most)) boxes.push_back(b);
  }
  return boxes;
}

class Maker {
 public:
  Maker(const Layout& from, const Layout& to, const PlanOptions& options,
        std::vector<std::uint32_t> tensors)
      : from_(from), to_(to), options_(options), messages_(plan_, options) {
    plan_.tensors = std::move(tensors);
    plan_.hosts = options.hosts;
    if (plan_.hosts.empty()) plan_.hosts.assign(index(from.ranks), 0);
    messages_.begin();
    hosts_ = *std::ranges::max_element(plan_.hosts) + 1;
  }

  Plan make() {
    // Twice over all cells, as keeping them would take more memory than the plan.
    for (std::uint32_t t = 0; t < to_.tensors.size(); ++t) {
      each_cell(t, [&](const Cell& cell, std::size_t holders) { count_far(cell, holders); });
    }
    share_out();
    for (std::uint32_t t = 0; t < to_.tensors.size(); ++t) {
      each_cell(t, [&](const Cell& cell, std::size_t holders) { send(cell, holders); });
    }
    messages_.gather();
    return std::move(plan_);
  }

 private:
  int host(int rank) const { return plan_.hosts[index(rank)]; }
  std::uint64_t element_bytes(std::uint32_t tensor) const {
    return size_of(
        travel_type(from_.tensors[plan_.tensors[tensor]].type, to_.tensors[tensor].type));
  }

  std::vector<Held> held_by(const Part& part, std::span<const Piece> pieces) const {
    std::vector<Held> held;
    for (const std::uint32_t p : part.pieces) held.push_back({pieces[p].rank, p});
    return held;
  }
  std::size_t hosts_of(std::span<const Held> of) {
    std::vector<int> hosts;
    for (const Held& h : of) hosts.push_back(host(h.rank));
    return host_lists_.number_of(std::move(hosts));
  }

  /// Calls use(cell, the number of its holders' hosts) for the cells of a tensor.
  template <class Use>
  void each_cell(std::uint32_t t, const Use& use) {
    const TensorLayout& target = to_.tensors[t];
    const TensorLayout& source = from_.tensors[plan_.tensors[t]];
    std::vector<Part> held = partition(source.pieces);
    const PartIndex holding(held);
    std::vector<std::vector<Held>> holders;
    std::vector<std::size_t> hosts;
    for (const Part& have : held) {
      holders.push_back(held_by(have, source.pieces));
      hosts.push_back(hosts_of(holders.back()));
    }
    for (const Part& need : partition(target.pieces)) {
      const std::vector<Held> needers = held_by(need, target.pieces);
      holding.each(need.box, [&](const Part& have) {
        const auto i = static_cast<std::size_t>(&have - held.data());
        use(Cell{t, intersection(need.box, have.box), holders[i], needers}, hosts[i]);
      });
    }
  }

  /// Puts the needers whose hosts lack the cell into far_, which is overwritten.
  void find_far(const Cell& cell, std::size_t holders) {
    const std::vector<int>& have = host_lists_[holders];
    far_.clear();
    for (const Held& n : cell.needers) {
      if (!std::ranges::binary_search(have, host(n.rank))) far_.push_back(n);
    }
  }

  void count_far(const Cell& cell, std::size_t holders) {
    find_far(cell, holders);
    if (far_.empty()) return;
    Demand& demand = links_[{holders, hosts_of(far_)}].demand;
    demand.bytes += cell.box.elements() * element_bytes(cell.tensor);
  }

  void send(const Cell& cell, std::size_t holders) {
    std::map<int, std::vector<Held>> near;  // needers whose host has the cell
    for (const Held& n : cell.needers) {
      const auto own = std::ranges::find(cell.holders, n.rank, &Held::rank);
      if (own != cell.holders.end()) {
        add_hop({cell.tensor, own->piece, n.piece, false, cell.box}, n.rank, n.rank, 0);
      } else if (std::ranges::binary_search(host_lists_[holders], host(n.rank))) {
        near[host(n.rank)].push_back(n);
      }
    }
    for (const auto& [h, needers] : near) send_near(cell, h, needers);
    find_far(cell, holders);
    if (far_.empty()) return;
    Link& link = links_.at({holders, hosts_of(far_)});
    const std::uint64_t most = std::max<std::uint64_t>(link.most / element_bytes(cell.tensor), 1);
    for (const Box& box : cut_up(cell.box, most))
      send_box({cell.tensor, box, cell.holders, far_}, link);
  }

  /// To ranks of host `h`, which has the cell.
  void send_near(const Cell& cell, int h, std::span<const Held> needers) {
    std::vector<Source> sources;
    for (const Held& holder : cell.holders) {
      if (host(holder.rank) == h) sources.push_back({holder, false, {}});
    }
    const std::uint64_t most = options_.host_message_bytes / element_bytes(cell.tensor);
    for (const Box& box : cut_up(cell.box, std::max<std::uint64_t>(most, 1))) {
      spread(cell.tensor, box, sources, needers);
    }
  }

  /// Who has a box, and by which hop it got it.
  struct Source {
    Held held;
    bool relay = false;
    std::uint32_t key = 0;  // of that hop
    int served = 0;
  };

  /// Gives a box to ranks of a host: each source serves a few of them, then those serve others.
  void spread(std::uint32_t tensor, const Box& box, std::vector<Source> sources,
              std::span<const Held> needers) {
    constexpr int kFanOut = 4;
    for (const Held& n : needers) {
      const auto source = std::ranges::min_element(sources, {}, [&](const Source& s) {
        return std::tuple(s.served >= kFanOut, s.relay ? s.key + 1 : 0,
                          messages_.sent(s.held.rank));
      });
      ++source->served;
      const std::uint32_t key = add_hop({tensor, source->held.piece, n.piece, source->relay, box},
                                        source->held.rank, n.rank, source->key);
      sources.push_back({n, true, key, 0});
    }
  }

  // --- Between hosts ---------------------------------------------------------------------------

  void share_out() {
    std::vector<Demand> demands;
    std::vector<std::uint64_t> load(index(hosts_));
    for (auto& [hosts, link] : links_) {
      link.demand.holders = host_lists_[hosts.first];
      link.demand.needers = host_lists_[hosts.second];
      for (const int h : link.demand.needers) load[index(h)] += link.demand.bytes;
      demands.push_back(link.demand);
    }
    std::vector<DemandShare> shares = share_links(demands, hosts_);
    // Shares come out to the size of a box: so boxes are small beside what a link carries, where
    // there is a choice.
    const std::uint64_t fine = std::max<std::uint64_t>(std::ranges::max(load) / 128, 1);
    std::size_t d = 0;
    for (auto& [hosts, link] : links_) {
      link.share = std::move(shares[d++]);
      const bool choice = link.demand.holders.size() > 1 || std::ranges::max(link.share.relays) > 0;
      link.most = choice ? std::min(options_.message_bytes, fine) : options_.message_bytes;
    }
  }

  /// The receiver of a host that has received the least.
  Held leader_of(const Cell& cell, int h) const {
    const Held* best = nullptr;
    for (const Held& n : cell.needers) {
      if (host(n.rank) != h) continue;
      if (best == nullptr || messages_.received(n.rank) < messages_.received(best->rank)) best = &n;
    }
    return *best;
  }

  /// Takes `bytes` from what is left of a share, the largest one.
  static std::size_t take_largest(std::vector<std::uint64_t>& left, std::uint64_t bytes) {
    const auto i = std::ranges::max_element(left);
    *i -= std::min(*i, bytes);
    return static_cast<std::size_t>(i - left.begin());
  }

  void send_box(const Cell& cell, Link& link) {
    const std::vector<int>& needers = link.demand.needers;
    DemandShare& share = link.share;
    const std::uint64_t bytes = cell.box.elements() * element_bytes(cell.tensor);
    // The hosts that pass the box on, in the order of what is left of their shares, then the one
    // at the end of their chain, then those that holders serve.
    std::vector<std::size_t> order(needers.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::greater<>(),
                             [&](std::size_t i) { return share.relays[i]; });
    Source before;
    bool chained = false;
    for (const std::size_t i : order) {
      const Held leader = leader_of(cell, needers[i]);
      Source source = before;
      if (!chained) {
        source = holder_of(cell, link.demand.holders[take_largest(share.holders, bytes)]);
      }
      const std::uint32_t key =
          add_hop({cell.tensor, source.held.piece, leader.piece, source.relay, cell.box},
                  source.held.rank, leader.rank, source.key);
      const Source arrived{leader, true, key, 0};
      std::vector<Held> others;
      for (const Held& n : cell.needers) {
        if (host(n.rank) == needers[i] && (n.rank != leader.rank || n.piece != leader.piece)) {
          others.push_back(n);
        }
      }
      spread(cell.tensor, cell.box, {arrived}, others);
      chained = i != order.back() && share.relays[i] * 2 >= bytes;
      if (!chained) continue;
      share.relays[i] -= std::min(share.relays[i], bytes);
      before = arrived;
    }
  }

  /// The rank of a host that has sent the least.
  Source holder_of(const Cell& cell, int h) const {
    const Held* best = nullptr;
    for (const Held& s : cell.holders) {
      if (host(s.rank) != h) continue;
      if (best == nullptr || messages_.sent(s.rank) < messages_.sent(best->rank)) best = &s;
    }
    return {*best, false, 0, 0};
  }

  /// Adds it to a message; returns the key of that.
  std::uint32_t add_hop(const Move& move, int from, int to, std::uint32_t after) {
    return messages_.add(move, from, to, move.box.elements() * element_bytes(move.tensor), after);
  }

  const Layout& from_;
  const Layout& to_;
  const PlanOptions& options_;
  Plan plan_;
  int hosts_ = 1;
  HostLists host_lists_;
  std::map<std::pair<std::size_t, std::size_t>, Link> links_;  // by holders', needers' hosts
  std::vector<Held> far_;                                      // needers of a cell
  MessageMaker messages_;
};

[[noreturn]] void refuse_plan(const std::string& why) {
  throw Error(ErrorCode::invalid_argument, "reshard: " + why);
}

/// By tensor of `to`: its number in `from`.
std::vector<std::uint32_t> pair_tensors(const Layout& from, const Layout& to) {
  std::unordered_map<std::string_view, std::uint32_t> numbers;
  for (std::uint32_t t = 0; t < from.tensors.size(); ++t) numbers[from.tensors[t].name] = t;
  std::vector<std::uint32_t> pairs;
  for (const TensorLayout& t : to.tensors) {
    const auto found = numbers.find(t.name);
    if (found == numbers.end()) {
      refuse_plan(fmt::format("the target has tensor '{}', and the source does not", t.name));
    }
    const TensorLayout& source = from.tensors[found->second];
    if (source.shape != t.shape) {
      refuse_plan(fmt::format("tensor '{}' is {} in the source, and {} in the target", t.name,
                              text_of(Box::whole(source.shape)), text_of(Box::whole(t.shape))));
    }
    if (source.type != t.type && !(is_float(source.type) && is_float(t.type))) {
      refuse_plan(
          fmt::format("tensor '{}' is {} in the source and {} in the target: only floats "
                      "convert",
                      t.name, name(source.type), name(t.type)));
    }
    pairs.push_back(found->second);
  }
  return pairs;
}

void check_options(const PlanOptions& o, int ranks) {
  if (o.message_bytes == 0 || o.host_message_bytes == 0) refuse_plan("messages of 0 bytes");
  if (o.hosts.empty()) return;
  if (o.hosts.size() != index(ranks)) {
    refuse_plan(fmt::format("there are {} hosts' numbers for {} ranks", o.hosts.size(), ranks));
  }
  for (const int h : o.hosts) {
    if (h < 0 || h >= ranks) refuse_plan(fmt::format("a rank is on host {}, which cannot be", h));
  }
}

}  // namespace

Plan make_plan(const Layout& from, const Layout& to, const PlanOptions& options) {
  if (from.ranks != to.ranks) {
    refuse_plan(
        fmt::format("the source is a layout of {} ranks, and the target of {}: both count all "
                    "ranks of the communicator",
                    from.ranks, to.ranks));
  }
  check_options(options, from.ranks);
  return Maker(from, to, options, pair_tensors(from, to)).make();
}

}  // namespace tutti::parallel::reshard
