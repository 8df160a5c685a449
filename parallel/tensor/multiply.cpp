#include "parallel/tensor/multiply.h"

#include <fmt/format.h>

#include "core/error.h"

namespace tutti::parallel::tensor {
namespace {

template <class T>
void multiply_of(const Product& p) {
  const auto* const a = static_cast<const T*>(p.a);
  const auto* const b = static_cast<const T*>(p.b);
  auto* const c = static_cast<T*>(p.c);
  // Distances from one row, or column, to the next.
  const std::size_t a_row = p.transpose_a ? 1 : p.inner, a_inner = p.transpose_a ? p.rows : 1;
  const std::size_t b_inner = p.transpose_b ? 1 : p.columns, b_column = p.transpose_b ? p.inner : 1;
  for (std::size_t i = 0; i < p.rows; ++i) {
    for (std::size_t j = 0; j < p.columns; ++j) {
      T sum = p.adds ? c[i * p.columns + j] : T{0};
      for (std::size_t k = 0; k < p.inner; ++k) {
        sum += a[i * a_row + k * a_inner] * b[k * b_inner + j * b_column];
      }
      c[i * p.columns + j] = sum;
    }
  }
}

}  // namespace

void multiply(const Product& product) {
  if (product.type == DataType::float64) return multiply_of<double>(product);
  if (product.type == DataType::float32) return multiply_of<float>(product);
  throw Error(ErrorCode::invalid_argument,
              fmt::format("tensor::multiply() is for float32 and float64, not {}; give the layer "
                          "the multiplication of your framework",
                          name(product.type)));
}

}  // namespace tutti::parallel::tensor
