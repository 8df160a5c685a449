// The part of the host executor that serves links to and from other hosts: it polls those that it
// waits for, and rings their doorbells seldom.
#include <algorithm>

#include "collectives/execute/host/operation.h"

namespace tutti {

void Operation::note_far_sends(std::span<const SendLink> sends) {
  for (const SendLink& s : sends) {
    const auto same = [&](const SendLink& f) { return f.doorbell == s.doorbell; };
    if (remote(*s.doorbell) != nullptr && std::ranges::none_of(far_sends_, same)) {
      far_sends_.push_back(s);
    }
  }
}

void Operation::poll_links() {
  RemoteDoorbell* last = nullptr;
  const auto poll = [&](Doorbell& doorbell) {
    RemoteDoorbell* const far = remote(doorbell);
    if (far == nullptr || far == last) return;
    far->poll();
    last = far;
  };
  bool all_done = true;
  for (const Lane& lane : lanes_) {
    if (lane.tile >= end_of(lane)) continue;
    all_done = false;
    post_receives(lane);
    for (const ReceiveLink& r : lane.next->receives) {
      if (!r.link->ready()) poll(*r.doorbell);
    }
    for (const SendLink& s : lane.next->sends) {
      if (!s.link->ready(lane.next->bytes)) poll(*s.doorbell);
    }
  }
  if (!all_done) return;
  for (const SendLink& s : far_sends_) poll(*s.doorbell);
}

void Operation::abandon() {
  if (!spans_hosts_) return;
  for (const ZeroCopySend& send : zero_copy_sends_) send.link->keep(send.begin, send.end);
  for (const PostedReceive& posted : posted_receives_) posted.link->forget_expected();
  zero_copy_sends_.clear();
  posted_receives_.clear();
}

// The kernel takes one long message in a third of the time that it takes for ten short ones.
void Operation::ring_later(const Action& action) {
  constexpr std::size_t kTogether = std::size_t{512} << 10;
  for (const SendLink& s : action.sends) {
    if (remote(*s.doorbell) == nullptr) {
      ring(*s.doorbell);
    } else {
      unrung_ += action.bytes;
      if (std::ranges::find(unrung_doorbells_, s.doorbell) == unrung_doorbells_.end()) {
        unrung_doorbells_.push_back(s.doorbell);
      }
    }
  }
  if (unrung_ >= kTogether) ring_far();
}

void Operation::ring_far() {
  unrung_ = 0;
  for (Doorbell* doorbell : unrung_doorbells_) ring(*doorbell);
  unrung_doorbells_.clear();
}

}  // namespace tutti
