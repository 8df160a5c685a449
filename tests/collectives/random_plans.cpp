// How random plans are made: what all units have, and how they are written down.
#include "tests/collectives/random_plans.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/collectives/random_plan_maker.h"

namespace tutti::test {
namespace {

int parent_of(const std::vector<std::vector<std::size_t>>& children,
              const std::vector<int>& members, std::size_t child) {
  for (std::size_t i = 0; i < children.size(); ++i) {
    if (std::ranges::find(children[i], child) != children[i].end()) return members[i];
  }
  return members[0];
}

}  // namespace

RandomPlanMaker::RandomPlanMaker(std::mt19937_64& random, const RandomPlanSizes& sizes)
    : random_(random) {
  do {
    header_.collective = static_cast<Collective>(below(kCollectives));
  } while (header_.collective == Collective::send_recv);
  header_.algorithm = "random";
  header_.ranks = 1 + static_cast<int>(below(static_cast<std::uint32_t>(sizes.most_ranks)));
  header_.root = is_rooted(header_.collective) ? any_rank() : 0;
  header_.pieces = 1 + below(sizes.most_pieces);
  header_.lanes = 1 + below(sizes.most_lanes);
  header_.widest = 1;
  tmp_.resize(static_cast<std::size_t>(header_.ranks));
  windows_ = sizes.windows && below(3) == 0;
  few_channels_ = below(2) == 0;
}

Plan RandomPlanMaker::make() {
  const auto runs = cut_pieces();
  if (header_.collective == Collective::barrier) {
    add_barrier();
  } else if (is_reduction(header_.collective)) {
    add_reductions(runs);
  } else {
    add_copies(runs);
  }
  const std::uint32_t signals = below(4);
  for (std::uint32_t i = 0; i < signals && header_.collective != Collective::all_to_all_v; ++i) {
    add_signal();
  }
  return write_down();
}

std::vector<RandomPlanMaker::Run> RandomPlanMaker::cut_pieces() {
  std::vector<Run> runs;
  const std::uint32_t most = 1 + below(header_.pieces);
  for (std::uint32_t at = 0; at < header_.pieces;) {
    const std::uint32_t n = std::min(1 + below(most), header_.pieces - at);
    runs.push_back({at, n});
    at += n;
  }
  return runs;
}

std::vector<std::uint32_t> RandomPlanMaker::any_lanes() {
  std::vector<std::uint32_t> lanes(static_cast<std::size_t>(header_.ranks));
  for (auto& l : lanes) l = below(header_.lanes);
  return lanes;
}

Unit& RandomPlanMaker::new_unit(const std::vector<std::uint32_t>& lanes) {
  Unit& u = units_.emplace_back();
  u.lanes = lanes;
  u.id = units_.size();
  return u;
}

std::uint32_t RandomPlanMaker::more_tmp(int rank, std::uint32_t n) {
  auto& tmp = tmp_[static_cast<std::size_t>(rank)];
  tmp += below(3);  // some that nobody uses
  const std::uint32_t first = tmp;
  tmp += n;
  return first;
}

std::vector<int> RandomPlanMaker::shuffled_ranks() {
  std::vector<int> ranks(static_cast<std::size_t>(header_.ranks));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::shuffle(ranks.begin(), ranks.end(), random_);
  return ranks;
}

// --- Events of all units -------------------------------------------------------------------------

Event RandomPlanMaker::event(int rank, const Run& run) {
  Event e;
  e.rank = rank;
  e.count = run.count;
  return e;
}

void RandomPlanMaker::signal(Unit& u, int sender, int receiver, int number) {
  Event e;
  e.rank = sender;
  e.count = 0;
  e.sends = {{receiver, number}};
  u.events.push_back(e);
  e = {};
  e.rank = receiver;
  e.count = 0;
  e.receives = {{sender, number}};
  u.events.push_back(e);
}

void RandomPlanMaker::spread(Unit& u, const Run& run, Operand from_what,
                             const std::vector<int>& members, Operand to_what) {
  std::vector<std::vector<std::size_t>> children(members.size());
  for (std::size_t i = 1; i < members.size(); ++i) {
    children[below(static_cast<std::uint32_t>(i))].push_back(i);
  }
  for (std::size_t i = 0; i < members.size(); ++i) {
    std::vector<End> go;
    for (const std::size_t c : children[i]) {
      go.push_back({members[c], 100 + static_cast<int>(c)});
    }
    if (i == 0) {
      if (go.empty()) continue;
      Event e = event(members[0], run);
      e.memory_from = {from_what};
      e.shape = from_what;
      e.sends = go;
      u.events.push_back(e);
      continue;
    }
    Event e = event(members[i], run);
    e.receives = {{parent_of(children, members, i), 100 + static_cast<int>(i)}};
    e.memory_to = {to_what};
    e.shape = to_what;
    if (coin()) {
      e.sends = go;
      u.events.push_back(e);
      continue;
    }
    u.events.push_back(e);
    // One by one, out of memory, or into theirs (but for ranks that wait for a message).
    for (const End& end : go) {
      Event more = event(members[i], run);
      more.memory_from = {to_what};
      more.shape = to_what;
      more.sends = {end};
      u.events.push_back(more);
    }
  }
}

void RandomPlanMaker::add_barrier() {
  Unit& u = new_unit(any_lanes());
  const auto order = shuffled_ranks();
  for (std::size_t i = 1; i < order.size(); ++i) {
    signal(u, order[i], order[0], static_cast<int>(i));
  }
  for (std::size_t i = 1; i < order.size(); ++i) {
    signal(u, order[0], order[i], static_cast<int>(i) + 100);
  }
}

void RandomPlanMaker::add_signal() {
  Unit& u = new_unit(any_lanes());
  signal(u, any_rank(), any_rank(), 1);
}

// --- Writing it down -----------------------------------------------------------------------------

RandomPlanMaker::Link* RandomPlanMaker::link(const Unit& u, int sender, int receiver) {
  const std::uint32_t from_lane = u.lanes[static_cast<std::size_t>(sender)];
  const std::uint32_t to_lane = u.lanes[static_cast<std::size_t>(receiver)];
  const std::tuple key{sender, receiver, from_lane, to_lane};
  if (const auto found = links_.find(key); found != links_.end()) return &found->second;
  auto& used = channels_[{sender, receiver}];
  if (used.size() == kMostChannels) return nullptr;
  std::uint8_t channel = few_channels_ ? static_cast<std::uint8_t>(used.size())
                                       : static_cast<std::uint8_t>(below(kMostChannels));
  while (std::ranges::find(used, channel) != used.end()) {
    channel = static_cast<std::uint8_t>((channel + 1U) % kMostChannels);
  }
  used.push_back(channel);
  return &(links_[key] = Link{channel, {}});
}

bool RandomPlanMaker::can_come(const Unit& u) {
  const Event& e = u.events.front();
  return std::ranges::all_of(e.receives, [&](const End& end) {
    const Link* const l = link(u, end.peer, e.rank);
    return l != nullptr && !l->under_way.empty() &&
           l->under_way.front() == std::pair{u.id, end.message};
  });
}

Plan RandomPlanMaker::write_down() {
  struct Written {
    Event event;
    std::uint32_t lane;
    std::vector<Operand> destinations, sources;
  };
  std::vector<Written> all;
  std::size_t slots = 1;
  for (;;) {
    std::vector<Unit*> ready;
    for (Unit& u : units_) {
      if (!u.events.empty() && can_come(u)) ready.push_back(&u);
    }
    if (ready.empty()) break;  // done; or stuck, which makes the plan wrong
    Unit& u = *ready[below(static_cast<std::uint32_t>(ready.size()))];
    Written w{u.events.front(), u.lanes[static_cast<std::size_t>(u.events.front().rank)], {}, {}};
    u.events.pop_front();
    const Event& e = w.event;
    w.destinations = e.memory_to;
    w.sources = e.memory_from;
    for (const End& end : e.sends) {
      Link* const l = link(u, e.rank, end.peer);
      if (l == nullptr) continue;
      l->under_way.emplace_back(u.id, end.message);
      slots = std::max(slots, l->under_way.size());
      w.destinations.push_back(to(end.peer, l->channel));
    }
    for (const End& end : e.receives) {
      Link* const l = link(u, end.peer, e.rank);
      l->under_way.pop_front();
      w.sources.push_back(from(end.peer, l->channel));
    }
    std::shuffle(w.destinations.begin(), w.destinations.end(), random_);
    std::shuffle(w.sources.begin(), w.sources.end(), random_);
    if (!(e.sends.empty() && e.receives.empty())) {
      header_.widest = std::max(header_.widest, e.count);
    }
    all.push_back(std::move(w));
  }
  header_.slots = static_cast<std::uint32_t>(slots) + below(2) * below(20);
  Plan plan{header_, {}};
  for (int r = 0; r < header_.ranks; ++r) {
    RankPlanBuilder b(header_, r);
    b.reserve_tmp(tmp_[static_cast<std::size_t>(r)]);
    for (const Written& w : all) {
      if (w.event.rank != r) continue;
      auto step = b.lane(w.lane).step(w.destinations, w.sources);
      if (w.event.count == 0) continue;
      step.span(w.event.count).shaped_as(w.event.shape).completes(w.event.completes);
    }
    plan.ranks.push_back(b.finish());
  }
  return plan;
}

Plan random_plan(std::mt19937_64& random, const RandomPlanSizes& sizes) {
  return RandomPlanMaker(random, sizes).make();
}

}  // namespace tutti::test
