// The kinds of mutation.
#include "tests/collectives/plan_mutations.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::test {
namespace {

RankPlan& part_of(Plan& plan, int rank) { return plan.ranks[static_cast<std::size_t>(rank)]; }

std::vector<Step>& lane_of(Plan& plan, const Spot& at) {
  return part_of(plan, at.rank).lanes[at.lane];
}

/// A step with its operands at hand.
struct Opened {
  Plan& plan;
  Spot at;
  Step& step;
  std::vector<Operand> destinations, sources;

  Opened(Plan& p, const Spot& spot) : plan(p), at(spot), step(lane_of(p, spot)[spot.step]) {
    const RankPlan& part = part_of(p, spot.rank);
    destinations.assign(part.destinations(step).begin(), part.destinations(step).end());
    sources.assign(part.sources(step).begin(), part.sources(step).end());
  }
  bool is_source() const { return at.operand >= destinations.size(); }
  std::vector<Operand>& side() { return is_source() ? sources : destinations; }
  std::size_t index() const { return is_source() ? at.operand - destinations.size() : at.operand; }
  Operand& operand() { return side()[index()]; }
  void erase_operand() { side().erase(side().begin() + static_cast<std::ptrdiff_t>(index())); }
  /// Writes the operands back (behind the others: the old ones stay, unused).
  bool close() {
    auto& operands = part_of(plan, at.rank).operands;
    step.first_operand = static_cast<std::uint32_t>(operands.size());
    step.destinations = static_cast<std::uint16_t>(destinations.size());
    step.sources = static_cast<std::uint16_t>(sources.size());
    operands.insert(operands.end(), destinations.begin(), destinations.end());
    operands.insert(operands.end(), sources.begin(), sources.end());
    return true;
  }
};

void change_header(Plan& plan, const std::function<void(PlanHeader&)>& change) {
  change(plan.header);
  for (RankPlan& part : plan.ranks) change(part.header);
}

/// Chunks of the memory that an operand lies in.
std::uint32_t chunks_of(Plan& plan, int rank, const Operand& o) {
  const PlanHeader& h = plan.header;
  const int owner = o.is_remote() ? o.rank : rank;
  if (o.space == Space::tmp) return part_of(plan, owner).tmp_chunks;
  return h.pieces * (o.space == Space::in ? in_blocks(h.collective, h.ranks, owner, h.root)
                                          : out_blocks(h.collective, h.ranks, owner, h.root));
}

bool shift_chunk(Plan& plan, const Spot& at, int variant, bool source) {
  Opened s(plan, at);
  if (s.is_source() != source || s.operand().is_link()) return false;
  const std::uint32_t chunks = chunks_of(plan, at.rank, s.operand());
  if (chunks < 2) return false;
  s.operand().chunk = (s.operand().chunk + (variant == 0 ? 1 : chunks - 1)) % chunks;
  return s.close();
}

bool drop_destination(Plan& plan, const Spot& at, bool link) {
  Opened s(plan, at);
  if (s.is_source() || s.operand().is_link() != link) return false;
  s.erase_operand();
  return s.close();
}

/// The other end of the message that this operand sends or receives.
std::optional<Spot> other_end(Plan& plan, const Spot& at) {
  Opened s(plan, at);
  if (!s.operand().is_link()) return std::nullopt;
  const Operand link = s.operand();
  const bool sends = !s.is_source();
  const auto visit = [&](int rank, bool sending, int peer, auto&& found) {
    for (std::uint32_t l = 0; l < part_of(plan, rank).lanes.size(); ++l) {
      for (std::size_t i = 0; i < part_of(plan, rank).lanes[l].size(); ++i) {
        Opened other(plan, {rank, l, i, 0});
        const auto& side = sending ? other.destinations : other.sources;
        for (std::size_t o = 0; o < side.size(); ++o) {
          if (!side[o].is_link() || side[o].rank != peer || side[o].channel != link.channel)
            continue;
          found(Spot{rank, l, i, o + (sending ? 0 : other.destinations.size())});
        }
      }
    }
  };
  std::size_t messages = 0;
  std::size_t number = 0;
  visit(at.rank, sends, link.rank, [&](const Spot& spot) {
    if (spot.lane == at.lane && spot.step == at.step) number = messages;
    ++messages;
  });
  std::optional<Spot> result;
  std::size_t met = 0;
  visit(link.rank, !sends, at.rank, [&](const Spot& spot) {
    if (met++ == number) result = spot;
  });
  return result;
}

/// Removes a message at both its ends, so that counts agree.
bool drop_message(Plan& plan, const Spot& at, bool data) {
  const bool is_source = Opened(plan, at).is_source();
  const Step before = lane_of(plan, at)[at.step];
  if (is_source || (before.count > 0) != data) return false;
  const auto end = other_end(plan, at);
  if (!end) return false;
  // Two operands of one step: the one that lies further back goes first.
  for (const Spot& spot : {*end, at}) {
    Opened s(plan, spot);
    s.erase_operand();
    s.close();
  }
  for (Spot spot : {*end, at}) {
    auto& lane = lane_of(plan, spot);
    if (spot.step >= lane.size()) continue;
    const Step& s = lane[spot.step];
    const bool useless = s.count > 0 ? s.destinations == 0 : s.destinations + s.sources == 0;
    if (useless) lane.erase(lane.begin() + static_cast<std::ptrdiff_t>(spot.step));
  }
  return true;
}

bool swap_steps(Plan& plan, const Spot& at, std::size_t other) {
  auto& lane = lane_of(plan, at);
  if (other >= lane.size()) return false;
  std::swap(lane[at.step], lane[other]);
  return true;
}

bool drop_step(Plan& plan, const Spot& at, int variant) {
  if (variant == 1) return false;
  auto& lane = lane_of(plan, at);
  lane.erase(lane.begin() + static_cast<std::ptrdiff_t>(at.step));
  return true;
}

bool drop_source(Plan& plan, const Spot& at, int variant) {
  Opened s(plan, at);
  if (variant == 1 || !s.is_source()) return false;
  s.erase_operand();
  return s.close();
}

bool duplicate_source(Plan& plan, const Spot& at, int variant) {
  Opened s(plan, at);
  if (variant == 1 || !s.is_source()) return false;
  s.sources.push_back(s.operand());
  return s.close();
}

bool drop_memory_destination(Plan& plan, const Spot& at, int variant) {
  return variant == 0 && drop_destination(plan, at, false);
}

bool drop_link_destination(Plan& plan, const Spot& at, int variant) {
  return variant == 0 && drop_destination(plan, at, true);
}

bool add_destination(Plan& plan, const Spot& at, int variant) {
  Opened s(plan, at);
  if (s.step.count == 0) return false;
  const Operand o = variant == 0 ? out(0) : tmp(0);
  const std::uint32_t chunks = chunks_of(plan, at.rank, o);
  if (chunks == 0) return false;
  s.destinations.push_back(o);
  s.destinations.back().chunk = static_cast<std::uint32_t>(at.step) % chunks;
  return s.close();
}

bool wrong_source_chunk(Plan& plan, const Spot& at, int variant) {
  return shift_chunk(plan, at, variant, true);
}

bool wrong_destination_chunk(Plan& plan, const Spot& at, int variant) {
  return shift_chunk(plan, at, variant, false);
}

bool wrong_peer(Plan& plan, const Spot& at, int variant) {
  Opened s(plan, at);
  const int n = plan.header.ranks;
  if (!s.operand().is_link() || n <= variant + 1) return false;
  s.operand().rank = (s.operand().rank + 1 + variant) % n;
  return s.close();
}

bool wrong_channel(Plan& plan, const Spot& at, int variant) {
  Opened s(plan, at);
  if (variant == 1 || !s.operand().is_link()) return false;
  s.operand().channel ^= 1;
  return s.close();
}

bool wrong_owner(Plan& plan, const Spot& at, int variant) {
  Opened s(plan, at);
  if (!s.operand().is_remote() || plan.header.ranks <= variant + 1) return false;
  s.operand().rank = (s.operand().rank + 1 + variant) % plan.header.ranks;
  if (s.operand().rank == at.rank) s.operand().rank = Operand::kSelf;
  return s.close();
}

bool wrong_space(Plan& plan, const Spot& at, int variant) {
  Opened s(plan, at);
  if (s.operand().is_link()) return false;
  const Space others[2] = {s.operand().space == Space::out ? Space::tmp : Space::out,
                           s.operand().space == Space::in ? Space::tmp : Space::in};
  s.operand().space = others[variant];
  return s.close();
}

bool wrong_shape(Plan& plan, const Spot& at, int variant) {
  const PlanHeader& h = plan.header;
  const bool all_equal = h.pieces == 1 && h.collective != Collective::all_gather_v &&
                         h.collective != Collective::reduce_scatter_v &&
                         h.collective != Collective::all_to_all_v;
  Step& s = lane_of(plan, at)[at.step];
  const std::uint32_t chunks =
      chunks_of(plan, at.rank, s.shape_space == Space::in ? in(0) : out(0));
  if (all_equal || s.count == 0 || chunks < 2) return false;
  s.shape_chunk = (s.shape_chunk + (variant == 0 ? 1 : chunks - 1)) % chunks;
  return true;
}

bool wrong_span(Plan& plan, const Spot& at, int variant) {
  Step& s = lane_of(plan, at)[at.step];
  if (s.count == 0 || (variant == 0 && s.count == 1)) return false;
  s.count = variant == 0 ? s.count - 1 : s.count + 1;
  return true;
}

bool flip_completes(Plan& plan, const Spot& at, int variant) {
  if (variant == 1) return false;
  Step& s = lane_of(plan, at)[at.step];
  s.completes = !s.completes;
  return true;
}

bool swap_sources(Plan& plan, const Spot& at, int variant) {
  if (plan.header.collective != Collective::all_reduce) return false;  // elsewhere order is free
  Opened s(plan, at);
  if (variant == 1 || !s.is_source() || s.index() + 1 >= s.sources.size()) return false;
  std::swap(s.sources[s.index()], s.sources[s.index() + 1]);
  return s.close() && s.step.count > 0;
}

bool swap_neighbours(Plan& plan, const Spot& at, int variant) {
  return variant == 0 && swap_steps(plan, at, at.step + 1);
}

bool swap_sends(Plan& plan, const Spot& at, int variant) {
  Opened s(plan, at);
  if (variant == 1 || s.is_source() || !s.operand().is_link()) return false;
  const auto& lane = lane_of(plan, at);
  for (std::size_t i = at.step + 1; i < lane.size(); ++i) {
    Opened other(plan, {at.rank, at.lane, i, 0});
    if (std::ranges::find(other.destinations, s.operand()) == other.destinations.end()) continue;
    // The steps exchange what they send, but not the time and not the receiver.
    if (s.sources == other.sources) return false;
    std::swap(s.sources, other.sources);
    s.close();
    return other.close();
  }
  return false;
}

bool move_to_other_lane(Plan& plan, const Spot& at, int variant) {
  auto& lanes = part_of(plan, at.rank).lanes;
  if (lanes.size() < 2) return false;
  auto& from = lanes[at.lane];
  auto& to = lanes[(at.lane + 1) % lanes.size()];
  const Step step = from[at.step];
  from.erase(from.begin() + static_cast<std::ptrdiff_t>(at.step));
  const std::size_t where = variant == 0 ? std::min(at.step, to.size()) : to.size();
  to.insert(to.begin() + static_cast<std::ptrdiff_t>(where), step);
  return true;
}

bool drop_signal_and_wait(Plan& plan, const Spot& at, int variant) {
  return variant == 0 && drop_message(plan, at, false);
}

bool drop_data_message(Plan& plan, const Spot& at, int variant) {
  return variant == 0 && drop_message(plan, at, true);
}

bool fewer_slots(Plan& plan, const Spot&, int variant) {
  change_header(plan, [&](PlanHeader& h) { h.slots = variant == 0 ? h.slots - 1 : 0; });
  return true;
}

bool narrower_slots(Plan& plan, const Spot&, int variant) {
  if (variant == 1) return false;
  change_header(plan, [](PlanHeader& h) { --h.widest; });
  return true;
}

bool wrong_root(Plan& plan, const Spot&, int variant) {
  if (variant == 1 || plan.header.ranks < 2) return false;
  change_header(plan, [](PlanHeader& h) { h.root = (h.root + 1) % h.ranks; });
  return true;
}

bool less_tmp(Plan& plan, const Spot& at, int variant) {
  RankPlan& part = part_of(plan, at.rank);
  if (variant == 1 || at.lane != 0 || at.step != 0 || part.tmp_chunks == 0) return false;
  --part.tmp_chunks;
  return true;
}

constexpr Mutation kMutations[] = {
    {"drop a step", Mutation::Needs::step, true, drop_step},
    {"drop a source", Mutation::Needs::operand, true, drop_source},
    {"duplicate a source", Mutation::Needs::operand, true, duplicate_source},
    {"drop a memory destination", Mutation::Needs::operand, true, drop_memory_destination},
    {"drop a link destination", Mutation::Needs::operand, true, drop_link_destination},
    {"add a destination", Mutation::Needs::step, false, add_destination},
    {"wrong source chunk", Mutation::Needs::operand, true, wrong_source_chunk},
    {"wrong destination chunk", Mutation::Needs::operand, true, wrong_destination_chunk},
    {"wrong peer", Mutation::Needs::operand, true, wrong_peer},
    {"wrong channel", Mutation::Needs::operand, true, wrong_channel},
    {"wrong owner of remote memory", Mutation::Needs::operand, true, wrong_owner},
    {"wrong space", Mutation::Needs::operand, false, wrong_space},
    {"wrong shape", Mutation::Needs::step, true, wrong_shape},
    {"wrong span", Mutation::Needs::step, false, wrong_span},
    {"flip completes", Mutation::Needs::step, true, flip_completes},
    {"swap two sources", Mutation::Needs::operand, false, swap_sources},
    {"swap neighbouring steps", Mutation::Needs::step, false, swap_neighbours},
    {"swap what two messages carry", Mutation::Needs::operand, true, swap_sends},
    {"move a step to another lane", Mutation::Needs::step, false, move_to_other_lane},
    {"drop a signal and its wait", Mutation::Needs::operand, false, drop_signal_and_wait},
    {"drop a message at both ends", Mutation::Needs::operand, true, drop_data_message},
    {"fewer slots", Mutation::Needs::plan, false, fewer_slots},
    {"narrower slots", Mutation::Needs::plan, false, narrower_slots},
    {"wrong root", Mutation::Needs::plan, true, wrong_root},
    {"less tmp", Mutation::Needs::step, true, less_tmp},
};

}  // namespace

std::span<const Mutation> mutations() { return kMutations; }

}  // namespace tutti::test
