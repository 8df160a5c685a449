// combine() of operands that differ in width: some hold float32 for elements of a 16- or 8-bit
// float type. combine() reduces these types in float32, so a partial sum that is stored as float32
// is not rounded (Format::wide in collectives/plan.h).
#pragma once

#include <cstddef>
#include <span>

#include "core/combine.h"
#include "core/types.h"

namespace tutti {

/// The type in which combine() reduces elements of `type`.
constexpr DataType accumulation_type(DataType type) {
  return is_float(type) && size_of(type) < size_of(DataType::float32) ? DataType::float32 : type;
}
/// Whether partial sums have more digits than `type` can store.
constexpr bool is_widened(DataType type) { return accumulation_type(type) != type; }
/// The most bytes that a wide element has for each byte of a plain one.
inline constexpr std::size_t kMostWidening = 4;

/// combine() of elements of `type`, where the first `wide_destinations` of the destinations, and
/// the sources with a 1 in `wide_sources` (as many as `sources`), hold float32. Wide destinations
/// get the reduction as it is, plain ones get it rounded to `type` once. Prescale is for plain
/// sources; `stream` has no effect. A destination may be a source of the same width. Any alignment.
/// Allocates where a thread needs more scratch memory than before. Thread-safe. Throws
/// Error(internal) for a type that is not is_widened().
void combine_wide(DataType type, ReduceKind kind, std::span<void* const> destinations,
                  std::size_t wide_destinations, std::span<const Source> sources,
                  std::span<const unsigned char> wide_sources, std::size_t count,
                  const CombineOptions& options = {});

}  // namespace tutti
