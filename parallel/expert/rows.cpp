#include "parallel/expert/rows.h"

#include <cstring>
#include <utility>
#include <vector>

#include "core/convert.h"

namespace tutti::parallel::expert {
namespace {

bool is_narrow(DataType type) { return type != DataType::float64 && type != DataType::float32; }

/// Of a thread, so that rows need no allocation each.
std::vector<float>& scratch(std::size_t which, std::size_t width) {
  static thread_local std::vector<float> kept[2];
  kept[which].resize(width);
  return kept[which];
}

/// A row of a narrow type in float32, else the row itself.
const void* widened(const void* row, DataType type, std::size_t which, std::size_t width) {
  if (!is_narrow(type)) return row;
  std::vector<float>& wide = scratch(which, width);
  convert(row, type, wide.data(), DataType::float32, width);
  return wide.data();
}

template <class T>
void add(const void* row, double factor, bool first, T* to, std::size_t width) {
  const T* const from = static_cast<const T*>(row);
  const T f = static_cast<T>(factor);
  for (std::size_t i = 0; i < width; ++i) to[i] = first ? f * from[i] : to[i] + f * from[i];
}

template <class T>
double product(const void* a, const void* b, std::size_t width) {
  constexpr std::size_t kSums = 8;  // side by side, as a processor adds
  const T *const x = static_cast<const T*>(a), *const y = static_cast<const T*>(b);
  double sums[kSums] = {};
  std::size_t i = 0;
  for (; i + kSums <= width; i += kSums) {
    for (std::size_t s = 0; s < kSums; ++s) {
      sums[s] += static_cast<double>(x[i + s]) * static_cast<double>(y[i + s]);
    }
  }
  for (std::size_t s = 0; i < width; ++i, ++s) {
    sums[s] += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  }
  double all = 0;
  for (const double s : sums) all += s;
  return all;
}

}  // namespace

void scale_row(const void* from, double scale, void* to, DataType type, std::size_t width) {
  if (scale == 1) {
    std::memcpy(to, from, width * size_of(type));
    return;
  }
  const Term term{from, scale};
  sum_rows({&term, 1}, to, type, width);
}

void sum_rows(std::span<const Term> terms, void* to, DataType type, std::size_t width) {
  if (terms.empty()) {
    std::memset(to, 0, width * size_of(type));
    return;
  }
  if (type == DataType::float64) {
    bool first = true;
    for (const Term& t : terms) {
      add(t.row, t.factor, std::exchange(first, false), static_cast<double*>(to), width);
    }
    return;
  }
  float* const sum = is_narrow(type) ? scratch(1, width).data() : static_cast<float*>(to);
  bool first = true;
  for (const Term& t : terms) {
    add(widened(t.row, type, 0, width), t.factor, std::exchange(first, false), sum, width);
  }
  if (is_narrow(type)) convert(sum, DataType::float32, to, type, width);
}

double product_of(const void* a, const void* b, DataType type, std::size_t width) {
  if (type == DataType::float64) return product<double>(a, b, width);
  return product<float>(widened(a, type, 0, width), widened(b, type, 1, width), width);
}

}  // namespace tutti::parallel::expert
