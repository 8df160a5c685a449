// The numbers that the *_perf programs reduce and move, chosen so that a result has exactly one
// right value, bit for bit, whatever the order of reduction, and wherever an intermediate result
// was rounded to the type.
//
// Every element is a hash of (seed, rank, position), so a swapped, doubled, stale or missing block
// shows. The range depends on type and operator:
//
//     no operator      every bit pattern (a move must keep all of them, NaNs included)
//     integers         every value (sums and products wrap); prod: odd ones, so that the product
//                      keeps depending on every factor
//     min, max         every value but NaN
//     sum, mulsum      floats: small integers times a power of two that depends on the position.
//                      Few and small enough that every partial sum fits into the mantissa
//     avg              floats: as sum, and multiples of the number of ranks; where the type has too
//                      few bits for that, one rank contributes and the others are zero
//     prod             floats: one rank has a full mantissa, some +-2 or +-1/2, the others +-1
//
// "Few": with many ranks and few bits (the 8-bit floats), only some ranks contribute to a position,
// others to the next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/types.h"

namespace tutti::perf {

/// The parameters of every value. `kind` is empty if data is moved and not reduced.
struct Recipe {
  DataType type = DataType::float32;
  std::optional<ReduceKind> kind;
  int ranks = 1;
  std::uint64_t seed = 0;
  bool compressed = false;  // sums: small integers, which compressed messages carry exactly
};

class Data {
 public:
  explicit Data(const Recipe& recipe);

  const Recipe& recipe() const { return recipe_; }
  /// The operator that `rank` passes to the call: mulsum has scalar 1 on even ranks, 2 on odd ones.
  ReduceOp op(int rank) const;

  /// Elements [first, first + count) of `rank`'s contribution.
  void input(int rank, std::uint64_t first, std::size_t count, void* out) const;
  /// The same elements, reduced over all ranks.
  void reduction(std::uint64_t first, std::size_t count, void* out) const;
  /// The filler of memory that nobody may write, and of a destination before the call.
  void filler(std::uint64_t first, std::size_t count, void* out) const;

 private:
  // Sums of floats: value = integer * 2^scale, and the integers of all contributors together fit
  // into the mantissa.
  struct Sum {
    int contributors;           // ranks that are not zero at a position
    std::uint64_t magnitude;    // 1 <= |integer| <= magnitude, a power of 2
    std::uint64_t factor;       // avg: odd part of the number of ranks, a factor of every integer
    int shift;                  // avg: number of ranks = factor * 2^shift
    int scale_low, scale_high;  // 2^scale, by position
  };

  template <DataType type>
  std::uint64_t input_bits(int rank, std::uint64_t position) const;
  template <DataType type>
  std::uint64_t reduced_bits(std::uint64_t position) const;
  template <DataType type>
  std::uint64_t reduced_integer(std::uint64_t position) const;
  std::uint64_t hash(int rank, std::uint64_t position) const;
  std::uint64_t position_hash(std::uint64_t position) const;
  int first_contributor(std::uint64_t position) const;
  bool contributes(int rank, std::uint64_t position, int contributors) const;
  std::int64_t integer_of(int rank, std::uint64_t position) const;
  double scale_of(std::uint64_t position) const;
  template <DataType type>
  double factor_of(int rank, std::uint64_t position) const;

  Recipe recipe_;
  std::uint64_t key_;
  Sum sum_{};
  int product_contributors_ = 0;
  bool divides_late_ = false;  // avg: one contributor, and the quotient is rounded
};

}  // namespace tutti::perf
