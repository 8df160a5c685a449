// The vectorised loops beneath the optimizers: elementwise arithmetic, sums of squares, and
// conversions between float types. Compiled once per instruction set; all of them give the same
// bits. An element's result does not depend on where an array is cut, so it does not depend on the
// number of ranks that share the array.
#pragma once

#include <tutti/core/types.h>

#include <cstddef>

namespace tutti::parallel::kernels {

/// The elements of one update. All arrays are of one type, float32 or float64.
struct Block {
  void* master = nullptr;
  const void* gradient = nullptr;
  void* state[2] = {nullptr, nullptr};
  std::size_t count = 0;
};

/// g = scale gradient; p = keep p; m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g g;
/// p = p - rate (m / (root sqrt(v) + epsilon)). Each operation is rounded to the type.
struct AdamWConstants {
  double scale, keep, beta1, beta2, rate, root, epsilon;
};
void adamw(DataType type, const Block& block, const AdamWConstants& constants);

/// g = scale gradient + decay p; b = momentum b + g; p = p - rate (nesterov ? g + momentum b : b).
/// Without momentum there is no b, and state[0] may be null.
struct SgdConstants {
  double scale, decay, momentum, rate;
  bool nesterov;
};
void sgd(DataType type, const Block& block, const SgdConstants& constants);

/// Between float32, bfloat16 and float16, to nearest even; or from a type to itself.
void convert(DataType from, const void* in, DataType to, void* out, std::size_t count);

/// Of float64, float32, bfloat16 or float16, added up in eight float64 numbers (element i goes to
/// number i % 8), which are added at the end.
double sum_of_squares(DataType type, const void* data, std::size_t count);

}  // namespace tutti::parallel::kernels
