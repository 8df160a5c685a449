// What an operation that cannot go on says of itself: which rank it waits for, and why a message
// that has come is not the one that it wants.
#include <fmt/format.h>

#include <algorithm>

#include "execute/host/operation.h"

namespace tutti {

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
  for (const Lane& lane : lanes_) {
    if (lane.tile >= end_of(lane)) continue;
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
  for (const Lane& lane : lanes_) {
    if (lane.tile >= end_of(lane)) continue;
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
    const SendLink* s = far_sends_.empty() ? nullptr : unsent();
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
