// One call of a collective, for the interpreter of plans: what is in the memory of every rank when
// it begins, and what has to be in it at the end. Written from the definitions of the collectives,
// not from the verifier.
#pragma once

#include <cstdint>
#include <tuple>

#include "collectives/plan.h"

namespace tutti::test {

/// What a chunk holds. Inputs are random 64-bit numbers and sums wrap, so that two sums of
/// different inputs are different numbers.
struct Number {
  std::uint64_t sum = 0;
  std::uint64_t bits = 0;    // a hash of how it was computed: floating-point sums depend on it
  bool is_rounded = true;    // false: fresh from a scaled `in`, not yet stored
  int completions = 0;       // how often an integer average would have been divided
  std::uint32_t length = 0;  // elements
};

/// A chunk of memory: rank, which memory, tile (0 for tmp), chunk. In place, in and out share one.
using Place = std::tuple<int, Space, int, std::int64_t>;

/// A hash of two numbers.
std::uint64_t mix(std::uint64_t a, std::uint64_t b);

class Call {
 public:
  Call(const PlanHeader& header, bool in_place, std::uint64_t salt)
      : header_(header), in_place_(in_place), salt_(salt) {}

  Place place(int rank, Space space, int tile, std::uint32_t chunk) const;
  /// Elements of a chunk: random, but the same wherever blocks must have the same size.
  std::uint32_t length(int rank, Space space, std::uint32_t chunk) const;
  /// What rank `rank`'s user brings along.
  Number input(int rank, int tile, std::uint32_t chunk) const;
  /// An operator may scale inputs as they are read; doing so twice must not go unnoticed.
  std::uint64_t scale() const { return is_reduction(header_.collective) ? 3 : 1; }
  /// What rank `rank`'s out[chunk] has to hold at the end (sum and completions).
  Number expected(int rank, int tile, std::uint32_t chunk) const;

 private:
  Number total(int tile, std::uint32_t chunk) const;

  const PlanHeader& header_;
  bool in_place_;
  std::uint64_t salt_;
};

}  // namespace tutti::test
