// The arithmetic of tokens on their way to experts and back: rows are copied, scaled and added up.
// Rows are contiguous, of a floating-point type; narrow types are added up in float32. The order of
// each sum is fixed, so its bits are.
#pragma once

#include <cstddef>
#include <span>

#include "core/types.h"

namespace tutti::parallel::expert {

/// to = scale x from, of `width` elements each; a scale of 1 copies.
void scale_row(const void* from, double scale, void* to, DataType type, std::size_t width);

/// A row, and the factor before it in a sum.
struct Term {
  const void* row = nullptr;
  double factor = 1;
};
/// to = the sum of factor x row, one term after the other; of no terms 0.
void sum_rows(std::span<const Term> terms, void* to, DataType type, std::size_t width);

/// The sum of a[i] b[i], in float64.
double product_of(const void* a, const void* b, DataType type, std::size_t width);

}  // namespace tutti::parallel::expert
