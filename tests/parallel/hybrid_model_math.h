// What one rank and many compute alike in hybrid_model.h: norms, and the batch.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "parallel/optimizer/optimizer.h"
#include "tests/parallel/hybrid_model.h"

namespace tutti::test {

inline constexpr parallel::AdamW::Options kHybridAdamW{.learning_rate = 0.01, .weight_decay = 0.1};
inline constexpr double kHybridMostNorm = 0.9;  // some steps are clipped, some are not

/// Token `position` of a sequence; its target is the next one.
inline std::int64_t token(std::size_t step, std::size_t sequence, std::size_t position) {
  return static_cast<std::int64_t>(
      (step * 31 + sequence * 17 + position * position * 7 + position) % HybridSizes::tokens);
}

/// Each row with mean 0 and variance 1, times `gain`, plus `bias`.
inline Matrix normalised(const Matrix& x, const double* gain, const double* bias) {
  Matrix y(x.rows, x.columns);
  const auto n = static_cast<double>(x.columns);
  for (std::size_t r = 0; r < x.rows; ++r) {
    double mean = 0, variance = 0;
    for (std::size_t c = 0; c < x.columns; ++c) mean += x(r, c) / n;
    for (std::size_t c = 0; c < x.columns; ++c) variance += (x(r, c) - mean) * (x(r, c) - mean) / n;
    const double scale = 1 / std::sqrt(variance + 1e-5);
    for (std::size_t c = 0; c < x.columns; ++c)
      y(r, c) = (x(r, c) - mean) * scale * gain[c] + bias[c];
  }
  return y;
}

/// The gradient by x; those by gain and bias are added to.
inline Matrix normalised_backward(const Matrix& x, const double* gain, const Matrix& dy,
                                  double* dgain, double* dbias) {
  const std::vector<double> ones(x.columns, 1), zeros(x.columns, 0);
  const Matrix unit = normalised(x, ones.data(), zeros.data());
  Matrix dx(x.rows, x.columns);
  const auto n = static_cast<double>(x.columns);
  for (std::size_t r = 0; r < x.rows; ++r) {
    double mean = 0, variance = 0, sum = 0, along = 0;
    for (std::size_t c = 0; c < x.columns; ++c) mean += x(r, c) / n;
    for (std::size_t c = 0; c < x.columns; ++c) variance += (x(r, c) - mean) * (x(r, c) - mean) / n;
    for (std::size_t c = 0; c < x.columns; ++c) {
      const double d = dy(r, c) * gain[c];
      sum += d / n;
      along += d * unit(r, c) / n;
      dgain[c] += dy(r, c) * unit(r, c);
      dbias[c] += dy(r, c);
    }
    const double scale = 1 / std::sqrt(variance + 1e-5);
    for (std::size_t c = 0; c < x.columns; ++c) {
      dx(r, c) = scale * (dy(r, c) * gain[c] - sum - unit(r, c) * along);
    }
  }
  return dx;
}

}  // namespace tutti::test
