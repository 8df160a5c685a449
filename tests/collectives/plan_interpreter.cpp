// Running a plan step by step with numbers. Deliberately naive: maps, strings and copies.
#include "tests/collectives/plan_interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "tests/collectives/plan_call.h"

namespace tutti::test {
namespace {

struct Message {
  std::vector<Number> chunks;
};

struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Run {
 public:
  Run(const Plan& plan, bool in_place, std::uint64_t seed);
  void go();

 private:
  enum class Phase { wait, move, send };
  struct Lane {
    int rank = 0;
    std::uint32_t index = 0;
    int tile = 0;
    std::size_t step = 0;
    Phase phase = Phase::wait;
    std::uint32_t chunk = 0;       // of the step: the next to move
    std::size_t operand = 0;       // of the chunk: the next to read or write; or to send to
    std::vector<Number> gathered;  // of the chunk: the sources read so far
    Number result;                 // of the chunk
    std::vector<Message> arrived;  // by source; empty for memory
    Message leaving;
    std::uint64_t priority = 0;
  };

  const RankPlan& part(int r) const { return plan_.ranks[static_cast<std::size_t>(r)]; }
  const Step& step_of(const Lane& l) const { return part(l.rank).lanes[l.index][l.step]; }
  bool has_started(int r) const { return started_[static_cast<std::size_t>(r)]; }
  bool is_done(const Lane& l) const { return l.tile == tiles_; }

  bool can_go(const Lane& lane) const;
  void advance(Lane& lane);
  void begin(Lane& lane);
  void move(Lane& lane);
  void send(Lane& lane);
  void finish_step(Lane& lane);
  void end_call(int rank);

  Number read(const Lane& lane, const Operand& o, std::uint32_t i);
  void write(const Lane& lane, const Operand& o, std::uint32_t i, const Number& n);
  Number combined(const Lane& lane) const;
  Number unrounded(const Lane& lane) const;
  int owner(const Lane& lane, const Operand& o) const { return o.is_remote() ? o.rank : lane.rank; }
  void occupy(const Lane& lane, int by);
  void check_remote(const Lane& lane, const Operand& o) const;

  Number garbage() {
    return {random_(), random_(), true, 0, 1 + static_cast<std::uint32_t>(random_() % 1000)};
  }

  const Plan& plan_;
  bool windows_ = false;
  std::mt19937_64 random_;
  bool by_priority_;
  int tiles_;
  Call call_;
  std::vector<Lane> lanes_;
  std::vector<bool> started_, ended_;
  std::map<std::tuple<int, int, int>, std::deque<Message>> links_;  // sender, receiver, channel
  std::map<Place, Number> memory_;
  std::map<Place, std::pair<int, int>> busy_;  // readers and writers in the middle of a step
  std::set<std::pair<int, int>> heard_;        // (a, b): a has had a signal from b
  std::map<std::tuple<int, std::uint32_t>, std::uint64_t> first_bits_;  // by tile and chunk of out
};

Run::Run(const Plan& plan, bool in_place, std::uint64_t seed)
    : plan_(plan),
      random_(seed),
      by_priority_(seed % 2 == 1),
      tiles_(1 + static_cast<int>(seed / 2 % 2)),
      call_(plan.header, in_place, random_()) {
  for (const RankPlan& rank : plan.ranks) {
    for (std::uint32_t l = 0; l < rank.lanes.size(); ++l) {
      Lane lane;
      lane.rank = rank.rank;
      lane.index = l;
      lane.priority = random_();
      lanes_.push_back(lane);
    }
    windows_ |= std::any_of(rank.operands.begin(), rank.operands.end(),
                            [](const Operand& o) { return o.is_remote(); });
  }
  started_.resize(plan.ranks.size());
  ended_.resize(plan.ranks.size());
}

// --- Scheduling ----------------------------------------------------------------------------------

void Run::go() {
  for (;;) {
    std::vector<int> choices;  // lanes; then, below zero, ranks that can start
    for (std::size_t l = 0; l < lanes_.size(); ++l) {
      if (can_go(lanes_[l])) choices.push_back(static_cast<int>(l));
    }
    for (int r = 0; r < plan_.header.ranks; ++r) {
      if (!has_started(r)) choices.push_back(-1 - r);
    }
    if (choices.empty()) break;
    int choice = choices[random_() % choices.size()];
    if (by_priority_) {
      // Bursts: the lane with the highest priority goes on and on, until priorities change.
      if (random_() % 16 == 0) lanes_[random_() % lanes_.size()].priority = random_();
      std::uint64_t best = 0;
      for (const int c : choices) {
        const std::uint64_t p =
            c >= 0 ? lanes_[static_cast<std::size_t>(c)].priority : (random_() >> (random_() % 8));
        if (p >= best) choice = c, best = p;
      }
    }
    if (choice < 0) {
      const int r = -1 - choice;
      started_[static_cast<std::size_t>(r)] = true;
      for (int tile = 0; tile < tiles_; ++tile) {
        const PlanHeader& h = plan_.header;
        const std::uint32_t chunks = in_blocks(h.collective, h.ranks, r, h.root) * h.pieces;
        for (std::uint32_t c = 0; c < chunks; ++c) {
          memory_[call_.place(r, Space::in, tile, c)] = call_.input(r, tile, c);
        }
      }
      for (Lane& lane : lanes_) {
        if (lane.rank != r) continue;
        while (!is_done(lane) && part(r).lanes[lane.index].empty()) ++lane.tile;
      }
      end_call(r);
    } else {
      advance(lanes_[static_cast<std::size_t>(choice)]);
    }
  }
  for (const Lane& lane : lanes_) {
    if (!is_done(lane)) throw Wrong(fmt::format("deadlock: rank {} waits", lane.rank));
  }
  for (const auto& [link, messages] : links_) {
    if (!messages.empty()) throw Wrong("a message was never read");
  }
}

bool Run::can_go(const Lane& lane) const {
  if (is_done(lane) || !has_started(lane.rank)) return false;
  if (windows_) {  // ranks that use windows finish a tile before they begin the next
    for (const Lane& other : lanes_) {
      if (other.rank == lane.rank && other.tile < lane.tile) return false;
    }
  }
  if (lane.phase != Phase::wait) return true;
  const Step& step = step_of(lane);
  const auto unread = [&](int sender, int receiver, int channel) {
    const auto link = links_.find({sender, receiver, channel});
    return link == links_.end() ? 0 : link->second.size();
  };
  for (const Operand& o : part(lane.rank).sources(step)) {
    if (o.is_link() && unread(o.rank, lane.rank, o.channel) == 0) return false;
  }
  for (const Operand& o : part(lane.rank).destinations(step)) {
    if (o.is_link() && unread(lane.rank, o.rank, o.channel) >= plan_.header.slots) return false;
  }
  return true;
}

void Run::advance(Lane& lane) {
  switch (lane.phase) {
    case Phase::wait:
      return begin(lane);
    case Phase::move:
      return move(lane);
    case Phase::send:
      return send(lane);
  }
}

// --- One step ------------------------------------------------------------------------------------

void Run::occupy(const Lane& lane, int by) {
  const Step& step = step_of(lane);
  for (std::uint32_t i = 0; i < step.count; ++i) {
    for (const Operand& o : part(lane.rank).sources(step)) {
      if (o.is_link()) continue;
      auto& [readers, writers] =
          busy_[call_.place(owner(lane, o), o.space, lane.tile, o.chunk + i)];
      readers += by;
      if (by > 0 && writers > 0) throw Wrong("two lanes at the same chunk");
    }
  }
  for (std::uint32_t i = 0; i < step.count; ++i) {
    std::set<Place> own_reads;
    for (const Operand& o : part(lane.rank).sources(step)) {
      if (!o.is_link())
        own_reads.insert(call_.place(owner(lane, o), o.space, lane.tile, o.chunk + i));
    }
    for (const Operand& o : part(lane.rank).destinations(step)) {
      if (o.is_link()) continue;
      const Place at = call_.place(owner(lane, o), o.space, lane.tile, o.chunk + i);
      auto& [readers, writers] = busy_[at];
      writers += by;
      if (by > 0 && (writers > 1 || (readers > 0 && !own_reads.contains(at)))) {
        throw Wrong("two lanes at the same chunk");
      }
    }
  }
}

void Run::begin(Lane& lane) {
  const Step& step = step_of(lane);
  lane.arrived.clear();
  for (const Operand& o : part(lane.rank).sources(step)) {
    Message message;
    if (o.is_link()) {
      message = links_[{o.rank, lane.rank, o.channel}].front();  // the slot is freed at the end
      if (step.count == 0) heard_.insert({lane.rank, o.rank});
      if (message.chunks.size() != step.count) throw Wrong("a message of another size");
    }
    lane.arrived.push_back(message);
  }
  for (const auto side : {part(lane.rank).destinations(step), part(lane.rank).sources(step)}) {
    for (const Operand& o : side) {
      if (o.is_remote()) check_remote(lane, o);
    }
  }
  occupy(lane, 1);
  lane.leaving.chunks.clear();
  lane.chunk = 0;
  lane.operand = 0;
  lane.gathered.clear();
  lane.phase = step.count > 0 ? Phase::move : Phase::send;
}

void Run::check_remote(const Lane& lane, const Operand& o) const {
  if (!heard_.contains({lane.rank, o.rank})) throw Wrong("remote memory at an unknown address");
  if (!has_started(o.rank)) throw Wrong("remote memory before the call");
  if (ended_[static_cast<std::size_t>(o.rank)]) throw Wrong("remote memory after the call");
}

void Run::move(Lane& lane) {
  const Step& step = step_of(lane);
  const auto sources = part(lane.rank).sources(step);
  const auto destinations = part(lane.rank).destinations(step);
  if (lane.operand < sources.size()) {
    const Operand& o = sources[lane.operand];
    lane.gathered.push_back(o.is_link() ? lane.arrived[lane.operand].chunks[lane.chunk]
                                        : read(lane, o, lane.chunk));
    if (++lane.operand == sources.size()) {
      lane.result = combined(lane);
      const bool wide = plan_.header.format == Format::wide && sends_wide(part(lane.rank), step);
      lane.leaving.chunks.push_back(wide ? unrounded(lane) : lane.result);
    }
    return;
  }
  const std::size_t d = lane.operand - sources.size();
  if (d < destinations.size()) {
    const Operand& o = destinations[d];
    const bool wide =
        plan_.header.format == Format::wide && o.space == Space::tmp && !step.completes;
    if (!o.is_link()) write(lane, o, lane.chunk, wide ? unrounded(lane) : lane.result);
    ++lane.operand;
    return;
  }
  lane.operand = 0;
  lane.gathered.clear();
  if (++lane.chunk == step.count) lane.phase = Phase::send;
}

Number Run::read(const Lane& lane, const Operand& o, std::uint32_t i) {
  if (o.is_remote()) check_remote(lane, o);
  const auto found = memory_.find(call_.place(owner(lane, o), o.space, lane.tile, o.chunk + i));
  Number n = found == memory_.end() ? garbage() : found->second;
  if (o.space == Space::in) {
    n.sum *= call_.scale();
    n.is_rounded = false;
  }
  return n;
}

void Run::write(const Lane& lane, const Operand& o, std::uint32_t i, const Number& n) {
  if (o.is_remote()) check_remote(lane, o);
  const int rank = owner(lane, o);
  if (o.space != Space::tmp && n.length > call_.length(rank, o.space, o.chunk + i)) {
    throw Wrong("a chunk runs over its end");
  }
  memory_[call_.place(rank, o.space, lane.tile, o.chunk + i)] = n;
}

Number Run::combined(const Lane& lane) const {
  const Step& step = step_of(lane);
  const std::uint32_t length =
      call_.length(lane.rank, step.shape_space, step.shape_chunk + lane.chunk);
  Number n;
  n.bits = 7;
  for (const Number& source : lane.gathered) {
    n.sum += source.sum;
    n.bits = mix(n.bits, source.is_rounded ? source.bits : ~source.bits);
    n.completions += source.completions;
    // Too short: the rest is whatever lies behind it. Too long: the rest is lost.
    if (source.length != length) n.sum ^= 0xdead;
  }
  if (lane.gathered.size() == 1) n.bits = lane.gathered[0].bits;
  if (step.completes) ++n.completions;
  // An integer average divides here; what is added to a quotient, or divided too early, is lost.
  if (lane.gathered.size() > 1 && n.completions > (step.completes ? 1 : 0)) n.sum ^= 0xbeef;
  n.length = length;
  return n;
}

/// lane.result, as a wide link or tmp holds it.
Number Run::unrounded(const Lane& lane) const {
  Number n = lane.result;
  n.is_rounded = lane.gathered.size() == 1 && lane.gathered[0].is_rounded;
  return n;
}

void Run::send(Lane& lane) {
  const Step& step = step_of(lane);
  const auto destinations = part(lane.rank).destinations(step);
  const auto sources = part(lane.rank).sources(step);
  if (lane.operand == 0) occupy(lane, -1);
  if (lane.operand < destinations.size()) {
    const Operand& o = destinations[lane.operand++];
    if (o.is_link()) links_[{lane.rank, o.rank, o.channel}].push_back(lane.leaving);
  } else if (lane.operand - destinations.size() < sources.size()) {
    const Operand& o = sources[lane.operand++ - destinations.size()];
    if (o.is_link()) {
      auto& link = links_[{o.rank, lane.rank, o.channel}];
      if (link.empty()) throw Wrong("a message was taken twice");
      link.pop_front();
    }
  }
  if (lane.operand == destinations.size() + sources.size()) finish_step(lane);
}

void Run::finish_step(Lane& lane) {
  lane.phase = Phase::wait;
  if (++lane.step < part(lane.rank).lanes[lane.index].size()) return;
  lane.step = 0;
  ++lane.tile;
  end_call(lane.rank);
}

// --- The end of the call -------------------------------------------------------------------------

void Run::end_call(int rank) {
  for (const Lane& lane : lanes_) {
    if (lane.rank == rank && !is_done(lane)) return;
  }
  const PlanHeader& h = plan_.header;
  if (h.collective == Collective::barrier) {
    for (int r = 0; r < h.ranks; ++r) {
      if (!has_started(r)) throw Wrong("a rank has left the barrier before another came");
    }
  }
  const std::uint32_t chunks = out_blocks(h.collective, h.ranks, rank, h.root) * h.pieces;
  for (int tile = 0; tile < tiles_; ++tile) {
    for (std::uint32_t c = 0; c < chunks; ++c) {
      const auto found = memory_.find(call_.place(rank, Space::out, tile, c));
      if (found == memory_.end()) throw Wrong("out was not written");
      const Number n = found->second;
      const Number want = call_.expected(rank, tile, c);
      if (n.sum != want.sum || n.completions != want.completions) {
        throw Wrong(fmt::format("out[{}] of rank {} is wrong", c, rank));
      }
      if (h.collective != Collective::all_reduce) continue;
      const auto first = first_bits_.try_emplace({tile, c}, n.bits).first;
      if (first->second != n.bits) throw Wrong("different bits");
    }
  }
  for (auto& [at, n] : memory_) {
    if (std::get<0>(at) == rank && std::get<1>(at) != Space::tmp) n = garbage();
  }
  ended_[static_cast<std::size_t>(rank)] = true;
}

}  // namespace

std::string interpret(const Plan& plan, bool in_place, std::uint64_t seed) {
  try {
    Run(plan, in_place, seed).go();
    return {};
  } catch (const Wrong& wrong) {
    return wrong.what();
  }
}

}  // namespace tutti::test
