// The interface between core/combine.cpp (arguments, copies, integer averages) and
// core/combine_kernels.cpp with its neighbours (the vectorised loops, compiled once per instruction
// set). No other file uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/combine.h"

namespace tutti::detail {

enum class Reduction : std::uint8_t { sum, prod, min, max };

/// One reduction over the elements [begin, end) of all operands. At least one source and one
/// destination.
struct ReduceArguments {
  std::span<void* const> destinations;
  std::span<const Source> sources;
  std::size_t begin = 0;
  std::size_t end = 0;
  std::uint32_t divisor = 1;
  std::size_t stream = 0;  // destinations, from the first on
  // As in CombineOptions; of floats alone:
  bool divide_result = false;
  bool canonical = false;
};

using ReduceFunction = void (*)(const ReduceArguments&);
/// The loop for one data type and operator, for the instruction set that Highway chooses.
ReduceFunction find_reduce(DataType type, Reduction reduction);
// Of float16 and bfloat16, and of the 8-bit floats, which have files of their own.
ReduceFunction find_reduce_of_16_bits(DataType type, Reduction reduction);
ReduceFunction find_reduce_of_8_bits(DataType type, Reduction reduction);

/// Copies, reading the source once, to the first `stream` destinations (at least one) with
/// non-temporal stores.
void stream_copy(std::span<void* const> destinations, std::size_t stream, const void* source,
                 std::size_t bytes);

/// Makes the non-temporal stores of this thread visible before its next release store.
void fence_streams();

}  // namespace tutti::detail
