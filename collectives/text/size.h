// The rules that the writer and the reader of a plan's text share: the writer leaves sizes out, and
// the reader fills them in.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "collectives/plan.h"

namespace tutti {

/// The size of a step: the bytes of these chunks of this rank's in or out.
struct StepSize {
  Space space = Space::out;
  std::uint32_t chunk = 0;
  std::uint32_t count = 0;
  friend bool operator==(const StepSize&, const StepSize&) = default;
};

/// The size of a step without `as`: that of its first operand in this rank's in or out,
/// destinations before sources. A step with nothing on one side (a signal, a wait) has no size. Any
/// other step must state it: nullopt. `count` is that of the memory operands.
std::optional<StepSize> implied_size(std::span<const Operand> destinations,
                                     std::span<const Operand> sources, std::uint32_t count);

}  // namespace tutti
