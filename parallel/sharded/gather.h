// Gathers a unit's parameters, and frees them.
#pragma once

#include <chrono>

#include "state.h"

namespace tutti::parallel {

class Gathering {
 public:
  explicit Gathering(State& state) : state_(state) {}

  /// Starts to gather all of the unit's parameters, unless they are here or on their way.
  void start(UnitState& u);
  /// Waits until the unit's parameters are here.
  void wait(UnitState& u);
  /// Stage 3: they are no longer here.
  void release(UnitState& u);
  /// Waits for operations under way, and ignores their results.
  void abandon() noexcept;
  /// Keeps the part that start() gathers from the small group.
  void keep_part(UnitState& u);

  std::size_t most_at_once() const { return most_; }  // units
  std::chrono::nanoseconds waited() const { return waited_; }

 private:
  /// Gathers blocks of `count` elements; this rank's block lies at `from`.
  void start_gather(UnitState& u, Axis& axis, const std::byte* from, std::byte* to,
                    std::size_t count);
  void start_from_shards(UnitState& u);
  void start_from_parts(UnitState& u);

  State& state_;
  std::size_t now_ = 0, most_ = 0;
  std::chrono::nanoseconds waited_{0};
};

}  // namespace tutti::parallel
