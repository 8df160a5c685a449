// A box of elements that goes from one memory into another, where it lies with other distances, and
// may become another type.
#pragma once

#include <tutti/core/types.h>

#include <cstddef>

#include "parallel/device.h"
#include "parallel/reshard/box.h"

namespace tutti::parallel::reshard {

/// Where a box lies: its first element, and the distances between neighbours.
template <class Byte>
struct PlaceOf {
  Byte* first = nullptr;
  Strides strides{};  // in elements
  DataType type{};
};
using SourcePlace = PlaceOf<const std::byte>;
using TargetPlace = PlaceOf<std::byte>;

/// `from` and `to` do not overlap. The types are the same one, or floats.
void copy_box(const Box& box, const SourcePlace& from, const TargetPlace& to);
/// The same in memory of `device`. On a GPU it is work on current(): a copy for all runs of the
/// innermost dimensions, or, where the types differ, a conversion for each run.
void copy_box(Device& device, const Box& box, const SourcePlace& from, const TargetPlace& to);

/// Whether the box lies in one run, in row-major order.
bool is_run(const Box& box, const Strides& strides);

}  // namespace tutti::parallel::reshard
