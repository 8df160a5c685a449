// Which of Highway's targets (instruction sets) the processor has, and the system lets programs
// use.
//
// libhwy.so would say so, too. But Tutti uses Highway's headers alone: merely loading that library
// costs each process 3 to 7 ms, in which it measures a clock
// (docs/experiments.md#many-processes-of-a-host). What the headers need of it is in highway-inl.h.
#pragma once

#include <cstdint>

namespace hwy {
struct ChosenTarget;
}

namespace tutti::detail {

/// Bits of Highway's HWY_* targets. Any thread.
std::int64_t supported_targets();

/// The one that all loops run on; Highway's headers keep it up to date.
hwy::ChosenTarget& chosen_target();

/// For tests: from now on loops run on the best of `targets`; 0: of all that there are. Not while
/// another thread runs such loops.
void support_only(std::int64_t targets);

}  // namespace tutti::detail
