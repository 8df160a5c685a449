#include "collectives/execute/host/operation.h"

#include <algorithm>
#include <cstring>

#include "core/memory.h"
#include "core/window_memory.h"

namespace tutti {

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
  binding_ = binding;
  const RankPlan& plan = *binding_.plan;
  element_ = size_of(binding_.signature.type);
  tag_ = binding_.tag;
  windows_ = binding_.windows;
  tile_ = 0;
  steps_done_ = 0;
  lanes_.clear();
  for (const auto& steps : plan.lanes) {
    Lane lane{steps.data(), steps.data(), steps.data() + steps.size(), 0, 0};
    if (!steps.empty())
      lane.tiles = binding_.tiles_by_lane ? tiles_of(steps) : binding_.tiling.tiles;
    lanes_.push_back(lane);
  }
  if (plan.tmp_chunks > 0) {
    const std::size_t stride = binding_.tiling.tile / plan.header.pieces * element_;
    tmp_ = workspace_.reserve(Workspace::kTmp, stride * plan.tmp_chunks);
  }
  bounce_in_ = bounce_out_ = nullptr;
  if (binding_.signature.sequence != 0) publish_signature(group_.control(), binding_.signature);
  if (is_rooted(plan.header.collective) && binding_.signature.sequence != 0) {
    // A root may finish without hearing from anybody. Of two ranks that differ, the fence lets at
    // least one see the other's record.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    compare_with_peers(group_, binding_.signature);
    if (group_.failed()) group_.throw_failure();
  }
  if (windows_) {
    peers_.resize(static_cast<std::size_t>(group_.size()));
    describe_buffers();
    copy_in();
  }
}

bool Operation::advance() {
  for (;;) {
    bool moved = false;
    std::size_t done = 0;
    for (Lane& lane : lanes_) {
      // Without windows the lanes run ahead of each other freely; tmp and links keep them right.
      const std::size_t end = windows_ ? std::min(lane.tiles, tile_ + 1) : lane.tiles;
      while (lane.tile < end && ready(*lane.next)) {
        perform(lane);
        moved = true;
        group_.control().step.store(++steps_done_, std::memory_order_relaxed);
        if (++lane.next == lane.end) {
          lane.next = lane.begin;
          ++lane.tile;
        }
      }
      if (lane.tile >= end) ++done;
    }
    if (done == lanes_.size()) {
      if (!windows_) return true;
      copy_out();
      if (++tile_ >= binding_.tiling.tiles) return true;
      copy_in();
      continue;
    }
    if (!moved) return false;
  }
}

bool Operation::ready(const Step& step) {
  const RankPlan& plan = *binding_.plan;
  for (const Operand& o : plan.sources(step)) {
    if (o.is_link() && !group_.receiver(o.rank, o.channel).ready()) return false;
  }
  for (const Operand& o : plan.destinations(step)) {
    if (o.is_link() && !group_.sender(o.rank, o.channel).ready()) return false;
  }
  return true;
}

Operation::Blocked Operation::blocked() const {
  const RankPlan& plan = *binding_.plan;
  Blocked first;
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    const Lane& lane = lanes_[l];
    if (lane.tile >= (windows_ ? std::min(lane.tiles, tile_ + 1) : lane.tiles)) continue;
    Blocked b;
    b.lane = static_cast<std::uint32_t>(l);
    b.step = static_cast<std::size_t>(lane.next - lane.begin);
    b.tile = lane.tile;
    for (const Operand& o : plan.sources(*lane.next)) {
      if (b.peer < 0 && o.is_link() && !group_.receiver(o.rank, o.channel).ready()) b.peer = o.rank;
    }
    b.sending = b.peer < 0;
    for (const Operand& o : plan.destinations(*lane.next)) {
      if (b.peer < 0 && o.is_link() && !group_.sender(o.rank, o.channel).ready()) b.peer = o.rank;
    }
    if (b.peer < 0) return b;  // this lane can go on
    if (first.peer < 0) first = b;
  }
  return first;
}

void Operation::perform(const Lane& lane) {
  if (lane.next->count == 0) {
    exchange_signals(*lane.next);
  } else {
    move(*lane.next, lane.tile);
  }
}

void Operation::exchange_signals(const Step& step) {
  const RankPlan& plan = *binding_.plan;
  const std::size_t bytes = windows_ ? sizeof(Addresses) : 0;
  for (const Operand& o : plan.sources(step)) {
    if (!o.is_link()) continue;
    Receiver& receiver = group_.receiver(o.rank, o.channel);
    accept(receiver, o.rank, bytes);
    if (windows_) learn(o.rank, receiver.slot(bytes));
    receiver.free();
    group_.ring(o.rank);
  }
  for (const Operand& o : plan.destinations(step)) {
    if (!o.is_link()) continue;
    Sender& sender = group_.sender(o.rank, o.channel);
    if (windows_) {
      std::memcpy(sender.slot(bytes), group_.same_process(o.rank) ? &mine_here_ : &mine_, bytes);
    }
    sender.publish(tag_, static_cast<std::uint32_t>(bytes));
    group_.ring(o.rank);
  }
}

Extent Operation::extent(const Step& step, std::uint32_t i, std::size_t tile) const {
  const std::uint32_t pieces = binding_.plan->header.pieces;
  const std::uint32_t chunk = step.shape_chunk + i;
  const BlockTable& table = step.shape_space == Space::in ? binding_.in : binding_.out;
  const std::uint32_t block = pieces == 1 ? chunk : chunk / pieces;
  return chunk_extent(binding_.tiling, tile, table.elements(block), element_, pieces,
                      pieces == 1 ? 0 : chunk % pieces);
}

Operation::Place Operation::place(const Operand& o, std::uint32_t i, std::size_t tile,
                                  const Extent& e) const {
  const PlanHeader& header = binding_.plan->header;
  const std::uint32_t chunk = o.chunk + i;
  const std::size_t stride = binding_.tiling.tile / header.pieces * element_;
  if (o.space == Space::tmp) {
    if (!o.is_remote()) return {tmp_ + chunk * stride, 0, -1};
  }
  const std::uint32_t block = chunk / header.pieces;
  // A bounce buffer holds one tile of each block, side by side.
  const std::size_t within_tile = e.begin - std::min(e.begin, tile * binding_.tiling.tile);
  const std::size_t bounced_offset = (block * binding_.tiling.tile + within_tile) * element_;
  if (!o.is_remote()) {
    std::byte* bounce = o.space == Space::in ? bounce_in_ : bounce_out_;
    if (bounce != nullptr) return {bounce + bounced_offset, 0, -1};
    const BlockTable& table = o.space == Space::in ? binding_.in : binding_.out;
    return {table.base + (table.offset(block) + e.begin) * element_, 0, -1};
  }
  const Peer& peer = peers_[static_cast<std::size_t>(o.rank)];
  const Peer::Buffer& buffer = peer.buffers[static_cast<std::size_t>(o.space)];
  std::size_t offset = 0;
  if (o.space == Space::tmp) {
    offset = chunk * stride;
  } else if ((peer.bounced & (o.space == Space::in ? 1U : 2U)) != 0) {
    offset = bounced_offset;
  } else {
    // Another rank's blocks lie as ours of the same collective: packed by rank, or a single one.
    const BlockTable& table = o.space == Space::in ? binding_.in : binding_.out;
    const bool single = block == 0;
    offset = ((single ? 0 : table.offset(block)) + e.begin) * element_;
  }
  if (buffer.pointer == nullptr) return {nullptr, buffer.remote + offset, o.rank};
  const std::size_t bytes = e.count * element_;
  if (offset > buffer.bytes || bytes > buffer.bytes - offset) {
    throw Error(ErrorCode::internal,
                "rank " + std::to_string(o.rank) + " gave an address outside of its window",
                o.rank);
  }
  return {buffer.pointer + offset, 0, -1};
}

void Operation::move(const Step& step, std::size_t tile) {
  const RankPlan& plan = *binding_.plan;
  const auto destinations = plan.destinations(step);
  const auto sources = plan.sources(step);
  const std::size_t operands = destinations.size() + sources.size();
  std::size_t total = 0;
  for (std::uint32_t i = 0; i < step.count; ++i) total += extent(step, i, tile).count * element_;
  for (const Operand& o : sources) {
    if (o.is_link()) accept(group_.receiver(o.rank, o.channel), o.rank, total);
  }
  std::size_t moved = 0;
  const auto resolve = [&](std::size_t k, std::uint32_t i, const Extent& e) -> Place {
    const Operand& o = k < destinations.size() ? destinations[k] : sources[k - destinations.size()];
    if (!o.is_link()) return place(o, i, tile, e);
    if (k < destinations.size())
      return {group_.sender(o.rank, o.channel).slot(total) + moved, 0, -1};
    const std::byte* slot = group_.receiver(o.rank, o.channel).slot(total) + moved;
    return {const_cast<std::byte*>(slot), 0, -1};
  };
  places_.resize(operands);
  for (std::uint32_t i = 0; i < step.count;) {
    Extent e = extent(step, i, tile);
    for (std::size_t k = 0; k < operands; ++k) places_[k] = resolve(k, i, e);
    std::size_t bytes = e.count * element_;
    // Chunks that follow each other in memory in every operand are done in one go.
    std::uint32_t next = i + 1;
    for (moved += bytes; next < step.count; ++next) {
      const Extent f = extent(step, next, tile);
      bool adjacent = true;
      for (std::size_t k = 0; adjacent && k < operands; ++k) {
        const Place p = resolve(k, next, f);
        adjacent =
            p.peer == places_[k].peer && (p.peer < 0 ? p.pointer == places_[k].pointer + bytes
                                                     : p.remote == places_[k].remote + bytes);
      }
      if (!adjacent) break;
      bytes += f.count * element_;
      moved += f.count * element_;
    }
    if (bytes > 0) combine_places(step, bytes / element_);
    i = next;
  }
  for (const Operand& o : sources) {
    if (!o.is_link()) continue;
    group_.receiver(o.rank, o.channel).free();
    group_.ring(o.rank);
  }
  for (const Operand& o : destinations) {
    if (!o.is_link()) continue;
    group_.sender(o.rank, o.channel).publish(tag_, static_cast<std::uint32_t>(total));
    group_.ring(o.rank);
  }
}

void Operation::combine_places(const Step& step, std::size_t elements) {
  const RankPlan& plan = *binding_.plan;
  const auto destinations = plan.destinations(step);
  const auto sources = plan.sources(step);
  const ReduceKind kind = binding_.op.kind;
  const bool reduces = is_reduction(plan.header.collective);
  CombineOptions options;
  options.divisor = static_cast<std::uint32_t>(group_.size());
  options.divide_result =
      reduces && step.completes && kind == ReduceKind::avg && !is_float(binding_.signature.type);
  options.stream = binding_.stream && std::none_of(destinations.begin(), destinations.end(),
                                                   [](const Operand& o) { return o.is_link(); });
  bool copies = false;
  destinations_.clear();
  sources_.clear();
  for (const Place& p : places_) copies = copies || p.peer >= 0;
  for (std::size_t k = 0; k < sources.size(); ++k) {
    const Operand& o = sources[k];
    Source s{places_[destinations.size() + k].pointer};
    if (reduces && o.space == Space::in) {
      if (kind == ReduceKind::pre_multiplied_sum) {
        s.prescale = Prescale::multiply;
        s.scalar =
            o.is_remote() ? peers_[static_cast<std::size_t>(o.rank)].scalar : binding_.op.scalar;
      } else if (kind == ReduceKind::avg && is_float(binding_.signature.type)) {
        s.prescale = Prescale::divide;
      }
    }
    sources_.push_back(s);
  }
  if (copies) return combine_through_copies(step, elements, options);
  for (std::size_t k = 0; k < destinations.size(); ++k) {
    // In place, a copy onto itself is nothing to do.
    if (sources_.size() == 1 && sources_[0].prescale == Prescale::none && !options.divide_result &&
        places_[k].pointer == sources_[0].data) {
      continue;
    }
    destinations_.push_back(places_[k].pointer);
  }
  if (destinations_.empty()) return;
  combine(binding_.signature.type, kind, destinations_, sources_, elements, options);
}

void Operation::accept(Receiver& receiver, int peer, std::size_t bytes) {
  const std::uint32_t tag = receiver.tag();
  const std::uint32_t got = receiver.bytes();
  if (tag != tag_ || got != bytes) mismatch(peer, tag, got, bytes);
}

void Operation::mismatch(int peer, std::uint32_t tag, std::uint32_t bytes, std::size_t expected) {
  const Signature& mine = binding_.signature;
  std::string theirs;
  if (mine.sequence == 0) {
    theirs = "sent " + point_to_point_text(tag);
  } else if (const auto s = read_signature(group_.control(peer), mine.sequence);
             s && s->tag() != tag_) {
    theirs = "called " + s->text();
    if (s->text() == mine.text()) theirs += " with other counts, or another plan";
  } else {
    theirs = "sent a message of " + std::to_string(bytes) + " bytes of another operation";
  }
  const std::string what = mine.sequence == 0 ? "receives " + point_to_point_text(tag_) +
                                                    " from rank " + std::to_string(peer)
                                              : "called " + mine.text();
  group_.fail({ErrorCode::mismatch, peer,
               "calls do not match: rank " + std::to_string(group_.rank()) + " " + what +
                   ", rank " + std::to_string(peer) + " " + theirs + " (a message of " +
                   std::to_string(expected) +
                   " bytes was expected). All ranks must make the same calls in the same order"});
  group_.throw_failure();
}

std::size_t Operation::tiles_of(const std::vector<Step>& steps) const {
  std::size_t most = 0;
  for (const Step& step : steps) {
    const BlockTable& table = step.shape_space == Space::in ? binding_.in : binding_.out;
    for (std::uint32_t i = 0; i < step.count; ++i) {
      most = std::max(most, table.elements((step.shape_chunk + i) / binding_.plan->header.pieces));
    }
  }
  // An empty block still takes part once, so that both ends see it.
  return std::max<std::size_t>(1, (most + binding_.tiling.tile - 1) / binding_.tiling.tile);
}

}  // namespace tutti
