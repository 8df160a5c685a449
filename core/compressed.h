// Numbers in eight bits: the format of compressed messages, and combine() with operands that have
// it.
//
// Floats travel in blocks that share a scale, as in the MXINT8 format (Open Compute Project,
// Microscaling Formats (MX) Specification 1.0, 2023). A block has the elements of 64 bytes: 32
// elements of 16 bits, or 16 of float32. Its first byte is the exponent of the scale, a power of
// two; a signed byte for each element follows. So 64 bytes become 33 (16-bit types) or 17
// (float32), and blocks begin where chunks of a plan can begin.
//
// Why integers: of numbers of about the same size, as the gradients of a layer are, an integer
// keeps seven bits of the largest and a float8_e4m3 three. Why powers of two: to scale is exact, so
// the bits are the same on every machine.
//
// The error. Let m be the largest magnitude of the block's finite elements. An element changes by
// at most m / 127, or by 2^-127 where that is more. (In detail: the scale is 2^-6 times the power
// of two below m, but 2^-126 at least. Elements are rounded to its multiples, to nearest even, and
// to 127 of them where they are larger.) Zeros are exact and become +0. An infinity or NaN becomes
// a NaN; the other elements of its block do not notice.
#pragma once

#include <cstddef>
#include <span>

#include "core/combine.h"
#include "core/types.h"

namespace tutti {

/// float16, bfloat16, float32.
constexpr bool is_compressible(DataType type) {
  return type == DataType::float16 || type == DataType::bfloat16 || type == DataType::float32;
}
/// Whether compressed messages can serve this operator: sum, avg, pre_multiplied_sum.
constexpr bool is_compressible(ReduceKind kind) {
  return kind == ReduceKind::sum || kind == ReduceKind::avg ||
         kind == ReduceKind::pre_multiplied_sum;
}

/// Elements of a block.
constexpr std::size_t compressed_block(DataType type) { return 64 / size_of(type); }
/// Bytes of `count` elements, compressed; the last block may be short.
constexpr std::size_t compressed_bytes(DataType type, std::size_t count) {
  return count + (count + compressed_block(type) - 1) / compressed_block(type);
}

/// combine() of sums, where operands may be compressed: the first `compressed_destinations`, and
/// the sources with a 1 in `compressed_sources` (as many as `sources`). It reads all sources as
/// float32, sums them in their order, and divides the sum if the options say so. If a destination
/// is compressed, the sum is compressed once, and every destination gets the compressed value: a
/// plain one gets it in `type`. A single compressed source, with no division, goes on bit for bit.
/// `left_out` is of `count` elements; without a compressed destination it stays as it is.
/// Prescale is for plain sources; `canonical` and `stream` have no effect. A plain destination may
/// be one of the plain sources. Any alignment. Thread-safe. Throws Error(internal) for a type that
/// is not compressible.
void combine_compressed(DataType type, std::span<void* const> destinations,
                        std::size_t compressed_destinations, std::span<const Source> sources,
                        std::span<const unsigned char> compressed_sources, std::size_t count,
                        const CombineOptions& options = {});

/// `count` elements to compressed_bytes(type, count) bytes, and back.
void compress(DataType type, const void* from, void* to, std::size_t count);
void decompress(DataType type, const void* from, void* to, std::size_t count);

}  // namespace tutti
