#include "parallel/sequence/merge.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/convert.h"
#include "parallel/sequence/kernel.h"

namespace tutti::parallel::sequence {
namespace {

const std::byte* element(const void* data, DataType type, std::size_t i) {
  return static_cast<const std::byte*>(data) + i * size_of(type);
}

template <class T>
void merge_of(DataType type, std::size_t rows, std::size_t dim, const void* part, const T* part_lse,
              T* out, T* lse) {
  std::vector<T> row(dim);
  for (std::size_t r = 0; r < rows; ++r, out += dim) {
    const T most = std::max(lse[r], part_lse[r]);
    if (most == -std::numeric_limits<T>::infinity()) continue;
    const T old = std::exp(lse[r] - most), come = std::exp(part_lse[r] - most);
    const T old_share = old / (old + come), share = come / (old + come);
    convert(element(part, type, r * dim), type, row.data(), wide(type), dim);
    for (std::size_t d = 0; d < dim; ++d) out[d] = old_share * out[d] + share * row[d];
    lse[r] = most + std::log(old + come);
  }
}

template <class T>
void add_of(DataType type, std::size_t count, const void* part, T* sum) {
  constexpr std::size_t kAtOnce = 1024;
  T values[kAtOnce];
  for (std::size_t i = 0; i < count; i += kAtOnce) {
    const std::size_t n = std::min(kAtOnce, count - i);
    convert(element(part, type, i), type, values, wide(type), n);
    for (std::size_t j = 0; j < n; ++j) sum[i + j] += values[j];
  }
}

template <class T>
void dot_rows_of(DataType type, std::size_t rows, std::size_t dim, const void* out,
                 const void* dout, T* delta) {
  std::vector<T> x(dim), y(dim);
  for (std::size_t r = 0; r < rows; ++r) {
    convert(element(out, type, r * dim), type, x.data(), wide(type), dim);
    convert(element(dout, type, r * dim), type, y.data(), wide(type), dim);
    T sum{0};
    for (std::size_t d = 0; d < dim; ++d) sum += x[d] * y[d];
    delta[r] = sum;
  }
}

}  // namespace

void merge(DataType type, std::size_t rows, std::size_t dim, const void* part, const void* part_lse,
           void* out, void* lse) {
  if (type == DataType::float64) {
    return merge_of(type, rows, dim, part, static_cast<const double*>(part_lse),
                    static_cast<double*>(out), static_cast<double*>(lse));
  }
  merge_of(type, rows, dim, part, static_cast<const float*>(part_lse), static_cast<float*>(out),
           static_cast<float*>(lse));
}

void add(DataType type, std::size_t count, const void* part, void* sum) {
  if (type == DataType::float64) return add_of(type, count, part, static_cast<double*>(sum));
  add_of(type, count, part, static_cast<float*>(sum));
}

void sum_heads(DataType type, std::size_t rows, std::size_t dim, std::size_t heads,
               std::span<const std::size_t> head_of, const void* messages, void* own) {
  std::vector<std::byte> sum(dim * size_of(wide(type)));
  auto* to = static_cast<std::byte*>(own);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t h = 0; h < heads; ++h, to += dim * size_of(type)) {
      std::fill(sum.begin(), sum.end(), std::byte{0});
      for (std::size_t r = 0; r < head_of.size(); ++r) {
        if (head_of[r] == h)
          add(type, dim, element(messages, type, (r * rows + i) * dim), sum.data());
      }
      convert(sum.data(), wide(type), to, type, dim);
    }
  }
}

void dot_rows(DataType type, std::size_t rows, std::size_t dim, const void* out, const void* dout,
              void* delta) {
  if (type == DataType::float64) {
    return dot_rows_of(type, rows, dim, out, dout, static_cast<double*>(delta));
  }
  dot_rows_of(type, rows, dim, out, dout, static_cast<float*>(delta));
}

}  // namespace tutti::parallel::sequence
