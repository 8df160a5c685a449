#include "collectives/execute/host/operation.h"

#include <algorithm>
#include <cstring>

#include "core/memory.h"

namespace tutti {
namespace {

constexpr std::size_t kMostPrograms = 256;  // remembered; then all are forgotten

}  // namespace

Workspace::~Workspace() {
  for (Piece& p : pieces_) deallocate(p.data);
}

std::byte* Workspace::reserve(Use use, std::size_t bytes) {
  Piece& p = pieces_[use];
  if (p.bytes < bytes) {
    deallocate(p.data);
    p = {};
    p.data = static_cast<std::byte*>(allocate(bytes));
    p.bytes = bytes;
  }
  return p.data;
}

void Operation::bind(const Binding& binding) {
  binding_ = &binding;
  const RankPlan& plan = *binding_->plan;
  const Signature& signature = binding_->signature;
  element_ = size_of(binding_->type);
  tile_ = 0;
  steps_done_ = 0;
  const bool even = binding_->in.counts.empty() && binding_->out.counts.empty();
  if (even) programs_ = &programs();
  lanes_.resize(plan.lanes.size());
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    Lane& lane = lanes_[l];
    lane.index = l;
    lane.tile = 0;
    lane.tiles = binding_->tiles_by_lane ? tiles_of(plan.lanes[l]) : binding_->tiling.tiles;
    if (plan.lanes[l].empty()) lane.tiles = 0;
    if (even) {
      lane.own.reset();
    } else if (!lane.own) {
      lane.own = std::make_unique<TileProgram>();
    }
    if (lane.tiles > 0) begin_tile(lane);
  }
  if (plan.tmp_chunks > 0) {
    const std::size_t stride = binding_->tiling.tile / plan.header.pieces * element_;
    tmp_ = workspace_.reserve(Workspace::kTmp, stride * plan.tmp_chunks);
  }
  if (signature.sequence != 0) {
    publish_signature(group_.control(), signature, binding_->unchanged);
    if (is_rooted(plan.header.collective)) {
      compare_with_peers(group_, signature);
      if (group_.failed()) group_.throw_failure();
    }
  }
  if (binding_->windows) {
    peers_.resize(static_cast<std::size_t>(group_.size()));
    describe_buffers();
  }
}

const Operation::Programs& Operation::programs() {
  const Key key{binding_->plan, binding_->in.count, binding_->type};
  if (programs_ != nullptr && key == key_) return *programs_;
  if (cache_.size() >= kMostPrograms) cache_.clear();
  std::unique_ptr<Programs>& p = cache_[key];
  if (!p) {
    p = std::make_unique<Programs>();
    const std::size_t tiles = binding_->tiling.tiles;
    p->last = compile(*binding_->plan, shape(), tiles - 1, group_);
    if (tiles > 1) p->whole = compile(*binding_->plan, shape(), 0, group_);
  }
  key_ = key;
  return *p;
}

std::size_t Operation::tiles_of(const std::vector<Step>& steps) const {
  std::size_t most = 0;
  for (const Step& step : steps) {
    const BlockTable& table = step.shape_space == Space::in ? binding_->in : binding_->out;
    for (std::uint32_t i = 0; i < step.count; ++i) {
      most = std::max(most, table.elements((step.shape_chunk + i) / binding_->plan->header.pieces));
    }
  }
  // An empty block still takes part once, so that both ends see it.
  return std::max<std::size_t>(1, (most + binding_->tiling.tile - 1) / binding_->tiling.tile);
}

void Operation::begin_tile(Lane& lane) {
  if (lane.own) {
    *lane.own = compile(*binding_->plan, shape(), lane.tile, group_, lane.index);
    lane.program = lane.own.get();
  } else {
    lane.program = lane.tile + 1 == binding_->tiling.tiles ? &programs_->last : &programs_->whole;
  }
  const std::vector<Action>& actions = lane.program->lanes[lane.index];
  lane.next = actions.data();
  lane.end = actions.data() + actions.size();
}

bool Operation::advance() {
  for (;;) {
    bool moved = false;
    std::size_t done = 0;
    for (Lane& lane : lanes_) {
      // Without windows the lanes run ahead of each other freely; tmp and links keep them right.
      const std::size_t end = end_of(lane);
      while (lane.tile < end && ready(*lane.program, *lane.next)) {
        perform(*lane.program, *lane.next, lane.tile);
        moved = true;
        group_.control().step.store(++steps_done_, std::memory_order_relaxed);
        if (++lane.next == lane.end && ++lane.tile < lane.tiles) begin_tile(lane);
      }
      if (lane.tile >= end) ++done;
    }
    if (done == lanes_.size()) {
      if (!binding_->windows) return true;
      if (++tile_ >= binding_->tiling.tiles) return true;
      continue;
    }
    if (!moved) return false;
  }
}

bool Operation::ready(const TileProgram& program, const Action& action) {
  for (std::uint32_t i = 0; i < action.receives; ++i) {
    if (!program.receives[action.first_receive + i].link->ready()) return false;
  }
  for (std::uint32_t i = 0; i < action.sends; ++i) {
    if (!program.sends[action.first_send + i].link->ready()) return false;
  }
  return true;
}

Operation::Blocked Operation::blocked() const {
  Blocked first;
  for (const Lane& lane : lanes_) {
    if (lane.tile >= end_of(lane)) continue;
    Blocked b;
    const TileProgram& program = *lane.program;
    const Action& action = *lane.next;
    for (std::uint32_t i = 0; i < action.receives && b.peer < 0; ++i) {
      const ReceiveLink& r = program.receives[action.first_receive + i];
      if (!r.link->ready()) b.peer = r.rank;
    }
    b.sending = b.peer < 0;
    for (std::uint32_t i = 0; i < action.sends && b.peer < 0; ++i) {
      const SendLink& s = program.sends[action.first_send + i];
      if (!s.link->ready()) b.peer = s.rank;
    }
    if (b.peer < 0) return b;  // this lane can go on
    if (first.peer >= 0) continue;
    first = b;
    first.lane = static_cast<std::uint32_t>(lane.index);
    first.step = static_cast<std::size_t>(lane.next - program.lanes[lane.index].data());
    first.tile = lane.tile;
  }
  return first;
}

void Operation::perform(const TileProgram& program, const Action& action, std::size_t tile) {
  if (action.signals) return signal(program, action);
  for (std::uint32_t i = 0; i < action.receives; ++i) {
    accept(program.receives[action.first_receive + i], action.bytes);
  }
  for (std::uint32_t i = 0; i < action.moves; ++i) {
    move(program, action, program.moves[action.first_move + i], tile);
  }
  for (std::uint32_t i = 0; i < action.receives; ++i) {
    const ReceiveLink& r = program.receives[action.first_receive + i];
    r.link->free();
    group_.ring(r.rank);
  }
  for (std::uint32_t i = 0; i < action.sends; ++i) {
    const SendLink& s = program.sends[action.first_send + i];
    s.link->publish(binding_->tag, action.bytes);
    group_.ring(s.rank);
  }
}

void Operation::signal(const TileProgram& program, const Action& action) {
  const std::size_t bytes = binding_->windows ? sizeof(Addresses) : 0;
  for (std::uint32_t i = 0; i < action.receives; ++i) {
    const ReceiveLink& r = program.receives[action.first_receive + i];
    accept(r, bytes);
    if (binding_->windows) learn(r.rank, r.link->slot(bytes));
    r.link->free();
    group_.ring(r.rank);
  }
  for (std::uint32_t i = 0; i < action.sends; ++i) {
    const SendLink& s = program.sends[action.first_send + i];
    if (binding_->windows) {
      std::memcpy(s.link->slot(bytes), group_.same_process(s.rank) ? &mine_here_ : &mine_, bytes);
    }
    s.link->publish(binding_->tag, static_cast<std::uint32_t>(bytes));
    group_.ring(s.rank);
  }
}

std::byte* Operation::pointer(const TileProgram& program, const Action& action, const Place& p,
                              std::size_t shift) const {
  switch (p.where) {
    case Place::Where::in:
      return binding_->in.base + p.offset + shift;
    case Place::Where::out:
      return binding_->out.base + p.offset + shift;
    case Place::Where::send:
      return program.sends[action.first_send + static_cast<std::uint32_t>(p.rank)].link->slot(
                 action.bytes) +
             p.offset;
    case Place::Where::receive: {
      const ReceiveLink& r =
          program.receives[action.first_receive + static_cast<std::uint32_t>(p.rank)];
      // Only read; sources and destinations share the type of their pointers.
      return const_cast<std::byte*>(r.link->slot(action.bytes)) + p.offset;
    }
    default:
      return tmp_ + p.offset;
  }
}

void Operation::move(const TileProgram& program, const Action& action, const Move& m,
                     std::size_t tile) {
  const Place* places = program.places.data() + m.first_place;
  const std::size_t shift = tile * binding_->tiling.tile * element_;
  destinations_.resize(m.destinations);
  sources_.resize(m.sources);
  bool copies = false;
  if (m.remote) {
    copies = find_targets(program, action, m, shift);
    for (std::size_t k = 0; k < m.destinations; ++k) destinations_[k] = targets_[k].pointer;
    for (std::size_t k = 0; k < m.sources; ++k)
      sources_[k] = {targets_[m.destinations + k].pointer};
  } else {
    for (std::size_t k = 0; k < m.destinations; ++k) {
      destinations_[k] = pointer(program, action, places[k], shift);
    }
    for (std::size_t k = 0; k < m.sources; ++k) {
      sources_[k] = {pointer(program, action, places[m.destinations + k], shift)};
    }
  }
  if (m.scaled) scale_sources(places + m.destinations);
  const ReduceKind kind = binding_->op.kind;
  CombineOptions options;
  options.divisor = static_cast<std::uint32_t>(group_.size());
  options.divide_result = action.completes && kind == ReduceKind::avg && !is_float(binding_->type);
  options.stream = binding_->stream && action.sends == 0;
  if (copies) return move_through_copies(m, options);
  const bool plain =
      m.sources == 1 && sources_[0].prescale == Prescale::none && !options.divide_result;
  if (plain) {
    // In place, a copy onto itself is nothing to do.
    std::erase(destinations_, sources_[0].data);
    const std::size_t bytes = m.elements * element_;
    if (bytes <= kCacheLine) {
      // As combine() would, without the way there.
      for (void* destination : destinations_) std::memcpy(destination, sources_[0].data, bytes);
      return;
    }
    if (destinations_.empty()) return;
  }
  combine(binding_->type, kind, destinations_, sources_, m.elements, options);
}

void Operation::scale_sources(const Place* sources) {
  const ReduceKind kind = binding_->op.kind;
  if (kind != ReduceKind::pre_multiplied_sum &&
      (kind != ReduceKind::avg || !is_float(binding_->type))) {
    return;
  }
  for (std::size_t k = 0; k < sources_.size(); ++k) {
    const Place& p = sources[k];
    if (!p.scaled) continue;
    if (kind == ReduceKind::avg) {
      sources_[k].prescale = Prescale::divide;
    } else {
      sources_[k].prescale = Prescale::multiply;
      sources_[k].scalar = p.where == Place::Where::in
                               ? binding_->op.scalar
                               : peers_[static_cast<std::size_t>(p.rank)].scalar;
    }
  }
}

void Operation::accept(const ReceiveLink& link, std::size_t bytes) {
  const std::uint32_t tag = link.link->tag();
  const std::uint32_t got = link.link->bytes();
  if (tag != binding_->tag || got != bytes) mismatch(link.rank, got, tag, bytes);
}

void Operation::mismatch(int peer, std::uint32_t bytes, std::uint32_t tag, std::size_t expected) {
  const Signature& mine = binding_->signature;
  const std::string rank = "rank " + std::to_string(peer);
  std::string calls;
  if (mine.sequence == 0) {
    calls = "receives " + point_to_point_text(binding_->tag) + " from " + rank + ", which sent " +
            point_to_point_text(tag);
  } else {
    const auto theirs = read_signature(group_.control(peer), mine.sequence);
    calls = "called " + mine.text() + ", " + rank + " ";
    if (!theirs || *theirs == mine) {
      calls += "sent a message of another operation";
    } else {
      calls += "called " + theirs->text();
      if (theirs->text() == mine.text()) calls += " with other counts, or another plan";
    }
  }
  group_.fail({ErrorCode::mismatch, peer,
               "calls do not match: rank " + std::to_string(group_.rank()) + " " + calls + " (" +
                   std::to_string(bytes) + " bytes came, " + std::to_string(expected) +
                   " were expected). All ranks must make the same calls in the same order"});
  group_.throw_failure();
}

}  // namespace tutti
