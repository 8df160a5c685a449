#include "parallel/sharded/order.h"

#include <algorithm>
#include <utility>

#include "parallel/agreement.h"

namespace tutti::parallel {

void Order::record(Event event) {
  seen_.insert({last_, event});
  next_[last_] = event;
  last_ = event;
  const std::size_t n = history_.size();
  as_before_ = as_before_ && n < before_.size() && before_[n] == event;
  history_.push_back(event);
  hash_ = mix(hash_, event.code() + 1);
}

std::vector<Event> Order::expected(std::size_t most) const {
  most = std::min(most, next_.size());  // ways may lead in a circle
  std::vector<Event> events;
  Event at = last_;
  for (std::size_t n = history_.size(); events.size() < most; ++n) {
    if (as_before_) {
      if (n == before_.size()) break;
      at = before_[n];
    } else {
      const auto next = next_.find(at);
      if (next == next_.end()) break;
      at = next->second;
    }
    if (at.kind == Event::Kind::finish) break;
    events.push_back(at);
  }
  return events;
}

void Order::forget_history() {
  before_ = std::move(history_);
  history_.clear();
  as_before_ = true;
  hash_ = 0;
}

}  // namespace tutti::parallel
