#include "parallel/data_parallel/matrix.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

namespace tutti::parallel {
namespace {

/// In the same order of additions everywhere; sixteen sums, so that a compiler can use vectors.
float dot(const float* x, const float* y, std::size_t count) {
  constexpr std::size_t kSums = 16;
  std::array<float, kSums> sums{};
  std::size_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (std::size_t k = 0; k < kSums; ++k) sums[k] += x[i + k] * y[i + k];
  }
  for (std::size_t k = 0; i + k < count; ++k) sums[k] += x[i + k] * y[i + k];
  float sum = 0;
  for (const float s : sums) sum += s;
  return sum;
}

/// y += factor x
void add_multiple(std::size_t count, float factor, const float* x, float* y) {
  for (std::size_t i = 0; i < count; ++i) y[i] += factor * x[i];
}

/// A step of SplitMix64 (Steele, Lea, Flood, 2014).
std::uint64_t next_random(std::uint64_t& state) {
  state += 0x9e3779b97f4a7c15u;
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

}  // namespace

void add(std::size_t count, const float* x, float* y) {
  for (std::size_t i = 0; i < count; ++i) y[i] += x[i];
}

void multiply(const float* a, const float* q, std::size_t m, std::size_t n, std::size_t r,
              float* p) {
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < r; ++j) p[i * r + j] = dot(a + i * n, q + j * n, n);
  }
}

void multiply_transposed(const float* a, const float* p, std::size_t m, std::size_t n,
                         std::size_t r, float* q) {
  std::fill(q, q + r * n, 0.0f);
  for (std::size_t i = 0; i < m; ++i) {
    for (std::size_t j = 0; j < r; ++j) add_multiple(n, p[i * r + j], a + i * n, q + j * n);
  }
}

void orthogonalise(float* p, std::size_t m, std::size_t r) {
  // Gram-Schmidt in float64, as r is small; and twice: a column that nearly depends on others keeps
  // a part along them at first, which is large beside the rest.
  std::vector<double> column(m);
  const auto size = [&] {
    double sum = 0;
    for (const double x : column) sum += x * x;
    return sum;
  };
  for (std::size_t j = 0; j < r; ++j) {
    for (std::size_t i = 0; i < m; ++i) column[i] = p[i * r + j];
    const double before = size();
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t k = 0; k < j; ++k) {
        double along = 0;
        for (std::size_t i = 0; i < m; ++i) along += column[i] * p[i * r + k];
        for (std::size_t i = 0; i < m; ++i) column[i] -= along * p[i * r + k];
      }
    }
    const double left = size();
    // Less than the rounding of its elements: nothing of its own.
    const double scale = left > 1e-12 * before ? 1 / std::sqrt(left) : 0;
    for (std::size_t i = 0; i < m; ++i) p[i * r + j] = static_cast<float>(column[i] * scale);
  }
}

void split(const float* p, const float* q, std::size_t m, std::size_t n, std::size_t r, float* a,
           float* rest) {
  for (std::size_t i = 0; i < m; ++i) {
    float* const row = a + i * n;
    float* const left = rest + i * n;
    std::copy(row, row + n, left);
    std::fill(row, row + n, 0.0f);
    for (std::size_t j = 0; j < r; ++j) add_multiple(n, p[i * r + j], q + j * n, row);
    for (std::size_t k = 0; k < n; ++k) left[k] -= row[k];
  }
}

void replace_zero_rows(float* q, std::size_t r, std::size_t n, std::uint64_t seed) {
  for (std::size_t j = 0; j < r; ++j) {
    float* const row = q + j * n;
    const float size = dot(row, row, n);
    if (size > 0 && std::isfinite(size)) continue;
    std::uint64_t state = seed * 1024 + j;
    for (std::size_t k = 0; k < n; ++k) {
      row[k] = static_cast<float>(static_cast<std::int64_t>(next_random(state)) * 0x1p-63);
    }
  }
}

}  // namespace tutti::parallel
