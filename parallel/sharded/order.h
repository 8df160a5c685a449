// Order: the sequence of events on units, learned from earlier steps. It says what to prefetch. It
// notices a new sequence of events, which the ranks then check together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tutti::parallel {

struct Event {
  enum class Kind : std::uint32_t { start, forward, backward, finish };
  Kind kind = Kind::start;
  std::uint32_t unit = 0;

  std::uint64_t code() const { return (std::uint64_t{unit} << 2) | static_cast<unsigned>(kind); }
  static Event of(std::uint64_t code) {
    return {static_cast<Kind>(code & 3), static_cast<std::uint32_t>(code >> 2)};
  }
  friend auto operator<=>(const Event&, const Event&) = default;
};

class Order {
 public:
  /// Whether `event` has followed the last event before.
  bool is_known(Event event) const { return seen_.contains({last_, event}); }
  void record(Event event);
  /// The next events, up to `most` and not beyond a finish, if this step goes on as the last one
  /// did. Once this step has gone another way: as events followed the same event before.
  std::vector<Event> expected(std::size_t most) const;

  Event last() const { return last_; }
  /// The events since forget_history(), and their hash.
  const std::vector<Event>& history() const { return history_; }
  std::uint64_t hash() const { return hash_; }
  void forget_history();

 private:
  Event last_;
  std::set<std::pair<Event, Event>> seen_;
  std::map<Event, Event> next_;          // the last time
  std::vector<Event> history_, before_;  // since forget_history(), and until then
  bool as_before_ = false;               // all of history_ is in before_
  std::uint64_t hash_ = 0;
};

}  // namespace tutti::parallel
