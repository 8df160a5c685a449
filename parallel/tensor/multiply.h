// The matrix multiplication that layers need. A framework supplies it; the layers decide which
// matrices to multiply when, and what to communicate in between.
#pragma once

#include <tutti/core/types.h>

#include <cstddef>
#include <functional>

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
/// order. An element's bits must not depend on the number of rows; otherwise results depend on how
/// a layer cuts its work into pieces.
using Multiply = std::function<void(const Product&)>;

/// Plain loops, for tests and examples: float32 and float64; each element is a sum in the order of
/// `inner`, so it has the same bits for any pieces.
void multiply(const Product& product);

}  // namespace tutti::parallel::tensor
