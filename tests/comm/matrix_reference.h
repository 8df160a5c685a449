// Matrices of float64 as a person would write them down: what the layers of parallel/tensor are
// compared with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace tutti::test {

struct Matrix {
  std::size_t rows = 0, columns = 0;
  std::vector<double> values;

  Matrix(std::size_t r, std::size_t c) : rows(r), columns(c), values(r * c) {}
  /// Numbers of about 1 that `seed` and the position determine.
  Matrix(std::size_t r, std::size_t c, double seed) : Matrix(r, c) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = std::sin(seed * 12.9898 + static_cast<double>(i) * 0.7371) *
                  std::cos(static_cast<double>(i * i % 97) + seed);
    }
  }
  double& operator()(std::size_t r, std::size_t c) { return values[r * columns + c]; }
  double operator()(std::size_t r, std::size_t c) const { return values[r * columns + c]; }
  double* data() { return values.data(); }
  const double* data() const { return values.data(); }
  bool operator==(const Matrix&) const = default;

  /// Rows [first, first + count), or columns.
  Matrix part(std::size_t first, std::size_t count, bool of_columns = false) const {
    Matrix m(of_columns ? rows : count, of_columns ? count : columns);
    for (std::size_t r = 0; r < m.rows; ++r) {
      for (std::size_t c = 0; c < m.columns; ++c) {
        m(r, c) = of_columns ? (*this)(r, first + c) : (*this)(first + r, c);
      }
    }
    return m;
  }
  /// The part of rank `rank` of `ranks`.
  Matrix slice(int rank, int ranks, bool of_columns = false) const {
    const auto n = (of_columns ? columns : rows) / static_cast<std::size_t>(ranks);
    return part(n * static_cast<std::size_t>(rank), n, of_columns);
  }
};

inline Matrix transposed(const Matrix& a) {
  Matrix t(a.columns, a.rows);
  for (std::size_t r = 0; r < a.rows; ++r) {
    for (std::size_t c = 0; c < a.columns; ++c) t(c, r) = a(r, c);
  }
  return t;
}

inline Matrix operator*(const Matrix& a, const Matrix& b) {
  Matrix c(a.rows, b.columns);
  for (std::size_t i = 0; i < a.rows; ++i) {
    for (std::size_t k = 0; k < a.columns; ++k) {
      for (std::size_t j = 0; j < b.columns; ++j) c(i, j) += a(i, k) * b(k, j);
    }
  }
  return c;
}

inline Matrix operator+(Matrix a, const Matrix& b) {
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] += b.values[i];
  return a;
}

/// With `bias`, of one row, added to each row.
inline Matrix plus_rows(Matrix a, const Matrix& bias) {
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] += bias.values[i % a.columns];
  return a;
}

inline Matrix sum_of_rows(const Matrix& a) {
  Matrix s(1, a.columns);
  for (std::size_t i = 0; i < a.values.size(); ++i) s.values[i % a.columns] += a.values[i];
  return s;
}

template <class F>
Matrix each(Matrix a, F f) {
  for (double& v : a.values) v = f(v);
  return a;
}

/// Element by element.
inline Matrix times(Matrix a, const Matrix& b) {
  for (std::size_t i = 0; i < a.values.size(); ++i) a.values[i] *= b.values[i];
  return a;
}

/// The largest difference, as a part of the expected number (at least of 0.01).
inline double difference(const Matrix& got, const Matrix& expected) {
  if (got.rows != expected.rows || got.columns != expected.columns) return HUGE_VAL;
  double largest = 0;
  for (std::size_t i = 0; i < got.values.size(); ++i) {
    const double d =
        std::abs(got.values[i] - expected.values[i]) / std::max(std::abs(expected.values[i]), 0.01);
    if (!(d <= largest)) largest = d;
  }
  return largest;
}

}  // namespace tutti::test
