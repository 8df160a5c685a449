// Lossless coding of weights: planes of bytes, of which those with little entropy are coded.
//
// The exponents of trained weights are few: of the 8 bits of a bfloat16's exponent, a layer's
// weights use 2.6. So a block of floats is turned into planes: each number is rotated left by one
// bit, so that its exponent fills the highest byte and its sign stands behind its mantissa; plane p
// has byte p of every number. zstd's Huffman coder codes a plane where a sample says that it pays;
// the others travel as they are. Decoding gives the same bits back.
//
// A coded block: for each plane, from the highest byte down, 5 bytes (how it is coded, and its
// size) and then its bytes.
#pragma once

#include <tutti/core/types.h>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace tutti::parallel::weights {

/// Codes and decodes blocks; keeps the coder's memory from one to the next. One thread at a time.
class PlaneCoder {
 public:
  PlaneCoder();
  ~PlaneCoder();
  PlaneCoder(const PlaneCoder&) = delete;
  PlaneCoder& operator=(const PlaneCoder&) = delete;

  /// Whether blocks of this type can be coded: float16, bfloat16, float32.
  static bool serves(DataType type);
  /// Of a block, the part that remains when it is coded, by a sample of its planes: from 0 to 1,
  /// and 1 where coding does not pay. Takes microseconds.
  static double estimate(DataType type, std::span<const std::byte> block);

  /// Appends the coded block to `out` and returns true. False, and `out` as it was: coded it would
  /// be no smaller. `block`: whole elements of a type that serves() has.
  bool encode(DataType type, std::span<const std::byte> block, std::vector<std::byte>& out);
  /// The block again; `block` has its size. Throws Error(mismatch) for bytes that encode() has not
  /// made of so large a block, and may have written any part of `block` then.
  void decode(DataType type, std::span<const std::byte> coded, std::span<std::byte> block);

 private:
  struct Context;
  std::unique_ptr<Context> context_;
  std::vector<std::byte> planes_;
};

}  // namespace tutti::parallel::weights
