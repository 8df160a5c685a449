// Agreement: engines whose ranks were set up differently would compute nonsense, or wait for each
// other for ever. So what has to be alike is written down as lines of text and compared once, when
// an engine is made. While all is well that is one all-reduce of 16 bytes on each axis. What a rank
// finds wrong by itself meanwhile is everybody's error, too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "axis.h"
#include "roll_call.h"

namespace tutti::parallel {

/// Collective over `ranks`. Returns where all have the same lines; otherwise all throw
/// Error(mismatch), with the first line that differs and a rank that is alone with it, or else the
/// first that differs from rank 0. `what` says what the lines describe ("the mesh").
void agree(RollCall& ranks, std::string_view what, std::span<const std::string> lines);
void agree(Axis& axis, std::string_view what, std::span<const std::string> lines);

/// Collective over `ranks`: does `body`, which each rank does by itself. Where it throws on some
/// ranks, all throw, so that nobody waits for a rank that has been refused: what it threw, where
/// that is the same on all; else Error(mismatch), with the first such rank and what it was told.
void together(RollCall& ranks, std::string_view what, const std::function<void()>& body);
void together(Axis& axis, std::string_view what, const std::function<void()>& body);

/// The first of `columns` entries that ranks have differently, of those of all ranks, which are one
/// rank's after the other's: a rank that differs, and one that it differs from.
struct Difference {
  std::size_t entry = 0;
  int rank = -1, other = -1;  // -1: there is none
};
Difference first_difference(std::span<const std::uint64_t> entries, std::size_t columns);

}  // namespace tutti::parallel
