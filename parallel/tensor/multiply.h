// The matrix multiplication that layers need, which a framework supplies: layers know which
// matrices are multiplied when, and what is communicated in between.
#pragma once

#include <cstddef>
#include <functional>

#include "../../core/types.h"

namespace tutti::parallel::tensor {

/// c = a b, or c += a b. Matrices are contiguous, stored by rows: a is rows x inner, b inner x
/// columns, c rows x columns; transposed ones are stored the other way round.
struct Product {
  DataType type = DataType::float32;
  std::size_t rows = 0, columns = 0, inner = 0;
  const void* a = nullptr;
  bool transpose_a = false;
  const void* b = nullptr;
  bool transpose_b = false;
  void* c = nullptr;
  bool adds = false;
};

/// What it computes is there when it returns, or, on a GPU, once whatever reads it next is in its
/// order. For results that do not depend on how a layer cuts its work into pieces, an element's
/// bits must not depend on the number of rows.
using Multiply = std::function<void(const Product&)>;

/// Plain loops, for tests and examples: float32 and float64; each element is a sum in the order of
/// `inner`, so it has the same bits in whatever pieces it is asked for.
void multiply(const Product& product);

}  // namespace tutti::parallel::tensor
