// Agreement: engines whose ranks were set up differently would compute nonsense, or wait for each
// other for ever. So what has to be alike is written down as lines of text and compared once, when
// an engine is made.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "axis.h"

namespace tutti::parallel {

/// Collective over `axis`. Returns where all ranks have the same lines; otherwise all throw
/// Error(mismatch), with the first rank that differs from rank 0, and the first line in which it
/// does. `what` says what the lines describe ("the mesh").
void agree(Axis& axis, std::string_view what, std::span<const std::string> lines);

}  // namespace tutti::parallel
