// The rules that the writer and the reader of a plan's text share, so that what one leaves out the
// other fills in.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "collectives/plan.h"

namespace tutti {

/// How much a step moves: as many bytes as these chunks of this rank's in or out.
struct StepSize {
  Space space = Space::out;
  std::uint32_t chunk = 0;
  std::uint32_t count = 0;
  friend bool operator==(const StepSize&, const StepSize&) = default;
};

/// The size of a step that does not spell it out with `as`: that of the first operand that is in or
/// out of this rank, destinations before sources. A step with nothing on one side (a signal, a
/// wait) has none. Any other step must say it: nullopt. `count` is that of the memory operands.
std::optional<StepSize> implied_size(std::span<const Operand> destinations,
                                     std::span<const Operand> sources, std::uint32_t count);

/// Whether an algorithm may be called that: one word.
bool is_plan_name(std::string_view name);

}  // namespace tutti
