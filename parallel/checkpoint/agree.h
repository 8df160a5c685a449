// What the ranks of a checkpoint agree on: whether one of them has failed, and whether their parts
// make whole tensors. All functions are collective over the axis.
#pragma once

#include <tutti/core/error.h>

#include <functional>
#include <optional>
#include <span>

#include "../axis.h"
#include "coverage.h"

namespace tutti::parallel {

/// Each rank runs `body` by itself. The gravest error, by its code, of all ranks; none: none has
/// failed.
std::optional<Error> gravest_error(Axis& axis, const std::function<void()>& body);

/// Runs `body` on all ranks, and throws the gravest_error().
void on_all_ranks(Axis& axis, const std::function<void()>& body);

/// check_whole() of the parts of all ranks together, of which each passes some; throws its error on
/// all of them. Parts without elements do not count. A tensor is checked by one of the ranks, so
/// each has about as much to do as it has parts.
void agree_on_whole(Axis& axis, std::span<const SavedPart> parts);

}  // namespace tutti::parallel
