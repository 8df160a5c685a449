#include "execute/host/operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

inline bool ready(const Action& action) {
  for (const ReceiveLink& r : action.receives) {
    if (!r.link->ready()) return false;
  }
  for (const SendLink& s : action.sends) {
    if (!s.link->ready(action.bytes_out)) return false;
  }
  return true;
}

}  // namespace

void Operation::bind(const Binding& binding) {
  binding_ = &binding;
  bool stream = binding.stream;
  if (binding.trial) {
    stream = binding.trial->next();
    begun_ = Clock::now();
  }
  if (binding.programs == nullptr || binding.programs != programs_) set_up();
  mover_.bind(binding, stream);
  tile_ = 0;
  for (LaneState& lane : lanes_) {
    lane.tile = 0;
    if (lane.tiles > 0) begin_tile(lane);
  }
  const Signature& signature = binding.signature;
  progress_ = progress_of(signature.sequence, 0);
  if (signature.sequence == 0) {
    published_ = &unpublished_;
  } else {
    published_ = &control_.progress;
    if (binding.unchanged) {
      publish_sequence(control_, signature.sequence);
    } else {
      publish_signature(control_, signature);
      if (is_rooted(signature.collective)) {
        compare_with_peers(group_, signature.sequence);
        liveness_.throw_if_failed();
      }
    }
  }
  if (spans_hosts_) remote_links_.bind();
  if (!binding.windows) return;
  binding_ = &peer_memory_.bind();
  mover_.bind(*binding_, stream);
}

void Operation::finish() {
  if (spans_hosts_) remote_links_.finish();
  if (binding_->windows) peer_memory_.finish();
  if (!binding_->trial) return;
  const std::chrono::duration<double, std::nano> took = Clock::now() - begun_;
  binding_->trial->took(took.count());
}

void Operation::abandon() {
  peer_memory_.abandon();
  if (binding_ != nullptr && binding_->condition != nullptr) binding_->condition->abandon();
  if (spans_hosts_) remote_links_.abandon();
}

void Operation::poll_links() {
  if (binding_->condition != nullptr) return binding_->condition->poll();
  remote_links_.poll(lanes_, limit());
}

void Operation::set_up() {
  if (binding_->condition != nullptr) return lanes_.clear();
  const RankPlan& plan = *binding_->plan;
  programs_ = binding_->programs;
  mover_.set_up(*binding_);
  remote_links_.forget_sends();
  if (spans_hosts_ && programs_) {
    remote_links_.note_sends(programs_->whole.sends);
    remote_links_.note_sends(programs_->last.sends);
  }
  lanes_.resize(plan.lanes.size());
  for (std::size_t l = 0; l < lanes_.size(); ++l) {
    LaneState& lane = lanes_[l];
    lane.index = l;
    const bool by_lane = programs_ && !programs_->by_lane.empty();
    const Tiling& tiling = by_lane ? programs_->by_lane[l].tiling : binding_->tiling;
    lane.tiles = binding_->tiles_by_lane && !by_lane ? tiles_of(plan, shape(), l) : tiling.tiles;
    lane.tile_bytes = tiling.tile * mover_.element_bytes();
    if (plan.lanes[l].empty()) lane.tiles = 0;
    if (programs_) {
      lane.own.reset();
      if (lane.tiles > 1) lane.whole = programs_->whole.lanes[l];
      if (lane.tiles > 0) lane.last = programs_->last.lanes[l];
    } else if (!lane.own) {
      lane.own = std::make_unique<TileProgram>();
    }
  }
}

std::span<const Action> Operation::compile_tile(LaneState& lane) {
  *lane.own = compile(*binding_->plan, shape(), lane.tile, &group_, lane.index);
  if (spans_hosts_) remote_links_.note_sends(lane.own->sends);
  return lane.own->lanes[lane.index];
}

inline void Operation::perform(const Action& action, std::size_t shift) {
  if (action.signals) return signal(action);
  if (is_pulled(action)) return pull(action, shift);
  for (const ReceiveLink& r : action.receives) accept(r, action.bytes_in, binding_->tag);
  if (spans_hosts_) {
    remote_links_.copy_pending_sends(action, shift);
    if (std::max(action.bytes_out, action.bytes_in) >= kZeroCopyBytes &&
        remote_links_.perform_zero_copy(action, shift))
      return;
  }
  if (action.bytes_out >= kBulkBytes && !action.sends.empty()) {
    move_bulk(action, shift);
  } else {
    mover_.write_messages_past_cache(false);
    for (const Move& m : action.moves) move(action, m, shift);
  }
  for (const ReceiveLink& r : action.receives) {
    r.link->free();
    ring(*r.doorbell);
  }
  for (const SendLink& s : action.sends) s.link->publish(binding_->tag, action.bytes_out);
  if (spans_hosts_) return remote_links_.ring_later(action);
  for (const SendLink& s : action.sends) ring(*s.doorbell);
}

bool Operation::advance() {
  for (;;) {
    bool moved = false;
    std::size_t done = 0;
    for (LaneState& lane : lanes_) {
      // Without windows the lanes run ahead of each other freely; tmp and links keep them right.
      const std::size_t end = std::min(lane.tiles, limit());
      while (lane.tile < end && ready(*lane.next)) {
        perform(*lane.next, lane.tile * lane.tile_bytes);
        moved = true;
        published_->store(++progress_, std::memory_order_relaxed);
        if (++lane.next == lane.end && ++lane.tile < lane.tiles) begin_tile(lane);
      }
      if (lane.tile >= end) ++done;
    }
    if (remote_links_.has_unrung() && (!moved || done == lanes_.size())) remote_links_.ring_far();
    if (done == lanes_.size()) {
      if (binding_->windows && ++tile_ < binding_->tiling.tiles) continue;
      if (!is_over()) return false;
      finish();
      return true;
    }
    if (!moved) return false;
  }
}

bool Operation::can_advance() const {
  bool all_done = true;
  for (const LaneState& lane : lanes_) {
    if (is_done(lane)) continue;
    if (ready(*lane.next)) return true;
    all_done = false;
  }
  return all_done && is_over();
}

void Operation::move_bulk(const Action& action, std::size_t shift) {
  // The messages of a step are written at once, so in one way: as the first one's link wants it.
  Sender& first = *action.sends.front().link;
  const Sender::Way way = first.choose_way();
  mover_.write_messages_past_cache(way.past_cache);
  const auto begun = way.timed ? Clock::now() : Clock::time_point{};
  for (const Move& m : action.moves) move(action, m, shift);
  if (!way.timed) return;
  const std::chrono::duration<double, std::nano> took = Clock::now() - begun;
  const std::size_t lines = action.bytes_out / kCacheLine * action.sends.size();
  first.took(took.count() / static_cast<double>(lines));
}

void Operation::signal(const Action& action) {
  const std::size_t bytes = binding_->windows ? sizeof(BufferAddresses) : 0;
  const bool uneven = binding_->tiles_by_lane && binding_->windows;
  // Ranks with different counts may disagree whether a block goes through a link or a window: the
  // tags keep a message of one kind from passing for one of the other.
  const std::uint32_t tag = uneven ? binding_->tag ^ 0x55555555U : binding_->tag;
  for (const ReceiveLink& r : action.receives) {
    accept(r, bytes, tag);
    const std::uint64_t lent =
        binding_->windows ? peer_memory_.learn(r.rank, r.link->slot(bytes)) : 0;
    if (uneven) {
      const std::size_t expected = binding_->out.elements(static_cast<std::uint32_t>(r.rank));
      const std::size_t element = mover_.element_bytes();
      if (lent != expected) mismatch(r.rank, lent * element, tag, expected * element);
    }
    r.link->free();
    ring(*r.doorbell);
  }
  for (const SendLink& s : action.sends) {
    if (binding_->windows) {
      const BufferAddresses told = peer_memory_.told_to(s.rank);
      std::memcpy(s.link->slot(bytes), &told, bytes);
    }
    s.link->publish(tag, static_cast<std::uint32_t>(bytes));
    ring(*s.doorbell);
  }
}

void Operation::pull(const Action& action, std::size_t shift) {
  const ReceiveLink& r = action.receives.front();
  const std::size_t element = mover_.element_bytes();
  const std::size_t bytes = binding_->out.count * element;
  if (shift == 0) {
    const std::uint64_t elements =
        peer_memory_.learn_alone(r.rank, r.link->slot(sizeof(BufferAddresses)));
    if (elements != binding_->out.count) mismatch(r.rank, elements * element, r.link->tag(), bytes);
  }
  const std::size_t length = std::min(lanes_.front().tile_bytes, bytes - shift);
  const CompiledOperand operands[] = {{.where = CompiledOperand::out},
                                      {.where = CompiledOperand::peer_in, .rank = r.rank}};
  peer_memory_.move(action, {operands, 1, 1, length / element, /*remote=*/true}, shift);
  if (shift + length < bytes) return;
  r.link->free();
  ring(*r.doorbell);
}

void Operation::accept(const ReceiveLink& link, std::size_t bytes, std::uint32_t tag) {
  const std::uint32_t its = link.link->tag();
  const std::uint32_t got = link.link->bytes();
  if (its != tag || got != bytes) mismatch(link.rank, got, its, bytes);
}

// --- What an operation that cannot go on says of itself: for which rank it waits, and why a
// message that has come is not the one that it wants.

bool Operation::waits_for_core(std::uint32_t core) const {
  const auto is_there = [&](const auto& link) {
    return group_.control(link.rank).core.load(std::memory_order_relaxed) == core;
  };
  const auto awaits = [&](const ReceiveLink& r) { return !r.link->ready() && is_there(r); };
  if (binding_->condition != nullptr) {
    const int peer = binding_->condition->peer();
    return group_.same_host(peer) &&
           group_.control(peer).core.load(std::memory_order_relaxed) == core;
  }
  if (const SendLink* const s = unread(); s != nullptr && is_there(*s)) return true;
  for (const LaneState& lane : lanes_) {
    if (is_done(lane)) continue;
    for (const SendLink& s : lane.next->sends) {
      if (!s.link->ready(lane.next->bytes_out) && is_there(s)) return true;
    }
    // Where only receives are left, the others wait for nothing of this rank's. It may as well let
    // a rank run that it has to hear from later.
    for (const Action* a = lane.next; a != lane.end; ++a) {
      if (a != lane.next && !a->sends.empty()) break;
      if (std::ranges::any_of(a->receives, awaits)) return true;
    }
  }
  return false;
}

Operation::Blocked Operation::blocked() const {
  Blocked first;
  if (Condition* const condition = binding_->condition) {
    if (!condition->holds()) first.peer = condition->peer();
    first.sending = true;  // it cannot be withdrawn
    return first;
  }
  for (const LaneState& lane : lanes_) {
    if (is_done(lane)) continue;
    Blocked b;
    for (const ReceiveLink& r : lane.next->receives) {
      if (b.peer < 0 && !r.link->ready()) b.peer = r.rank;
    }
    b.sending = b.peer < 0;
    for (const SendLink& s : lane.next->sends) {
      if (b.peer < 0 && !s.link->ready(lane.next->bytes_out)) b.peer = s.rank;
    }
    if (b.peer < 0) return b;  // this lane can go on
    if (first.peer >= 0) continue;
    first = b;
    first.lane = static_cast<std::uint32_t>(lane.index);
    first.step = static_cast<std::size_t>(lane.next - lane.first);
    first.tile = lane.tile;
  }
  if (first.peer < 0) {
    const SendLink* s = remote_links_.unsent();
    if (s == nullptr) s = unread();
    if (s != nullptr) {
      first.peer = s->rank;
      first.sending = true;
    }
  }
  return first;
}

std::string Operation::call_text() const {
  const Signature& mine = binding_->signature;
  if (mine.sequence != 0) return mine.text();
  const Blocked b = blocked();
  return fmt::format("{} rank {} ({})", b.sending ? "send to" : "recv from", b.peer,
                     point_to_point_text(binding_->tag));
}

void Operation::mismatch(int peer, std::size_t bytes, std::uint32_t tag, std::size_t expected) {
  const Signature& mine = binding_->signature;
  group_.diagnostics().refresh(peer);
  liveness_.check_peers_first("comparing calls");  // as in compare_with_peers()
  liveness_.throw_if_failed();
  const std::string rank = "rank " + std::to_string(peer);
  std::string calls;
  if (mine.sequence == 0) {
    calls = "receives " + point_to_point_text(binding_->tag) + " from " + rank + ", which sent " +
            point_to_point_text(tag);
  } else {
    compare_with_peers(group_);
    liveness_.throw_if_failed();
    calls = "called " + mine.text() + ", " + rank + " sent a message of another operation";
  }
  liveness_.fail({ErrorCode::mismatch, peer,
                  "calls do not match: rank " + std::to_string(group_.rank()) + " " + calls + " (" +
                      std::to_string(bytes) + " bytes came, " + std::to_string(expected) +
                      " were expected). All ranks must make the same calls in the same order"});
  liveness_.throw_failure();
}

}  // namespace tutti
