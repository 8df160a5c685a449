#include "parallel/sharded/order.h"

#include "parallel/sharded/agreement.h"

namespace tutti::parallel {

void Order::record(Event event) {
  seen_.insert({last_, event});
  next_[last_] = event;
  last_ = event;
  history_.push_back(event);
  hash_ = mix(hash_, event.code() + 1);
}

std::vector<Event> Order::expected(std::size_t most) const {
  std::vector<Event> events;
  Event at = last_;
  while (events.size() < most) {
    const auto next = next_.find(at);
    if (next == next_.end() || next->second.kind == Event::Kind::finish) break;
    at = next->second;
    events.push_back(at);
  }
  return events;
}

void Order::forget_history() {
  history_.clear();
  hash_ = 0;
}

}  // namespace tutti::parallel
