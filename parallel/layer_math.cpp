#include "parallel/layer_math.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/combine.h"
#include "core/convert.h"
#include "parallel/expert/rows.h"
#include "parallel/sequence/merge.h"

namespace tutti::parallel {
namespace {

std::byte* at(void* base, std::size_t bytes) { return static_cast<std::byte*>(base) + bytes; }
const std::byte* at(const void* base, std::size_t bytes) {
  return static_cast<const std::byte*>(base) + bytes;
}

template <class T>
void add_rows_of(const LayerMath::Matrix& m, const void* data, T* sum) {
  std::vector<T> row(m.width);
  const std::size_t bytes = m.width * size_of(m.type);
  for (std::size_t i = 0; i < m.rows; ++i) {
    convert(at(data, i * bytes), m.type, row.data(),
            m.type == DataType::float64 ? DataType::float64 : DataType::float32, m.width);
    for (std::size_t j = 0; j < m.width; ++j) sum[j] += row[j];
  }
}

/// Row `i` of the logits, widened.
void read_row(const LayerMath::Logits& logits, std::size_t i, std::vector<double>& row) {
  convert(at(logits.data, i * row.size() * size_of(logits.type)), logits.type, row.data(),
          DataType::float64, row.size());
}

/// A number from `first` on; one before `first` becomes very large.
std::size_t from(std::int64_t first, std::int64_t number) {
  return static_cast<std::size_t>(number) - static_cast<std::size_t>(first);
}

}  // namespace

void LayerMath::multiply(const tensor::Product& product) { tensor::multiply(product); }

void LayerMath::add_to_rows(const Matrix& m, const void* row, void* data) {
  const Combiner sum(m.type, ReduceKind::sum);
  for (std::size_t i = 0; i < m.rows; ++i) {
    void* const to = at(data, i * m.width * size_of(m.type));
    const Source sources[] = {{.data = to}, {.data = row}};
    sum({&to, 1}, sources, m.width);
  }
}

void LayerMath::add_rows(const Matrix& m, const void* data, void* sum) {
  if (m.type == DataType::float64) return add_rows_of(m, data, static_cast<double*>(sum));
  if (m.type == DataType::float32) return add_rows_of(m, data, static_cast<float*>(sum));
  std::vector<float> wide(m.width);
  convert(sum, m.type, wide.data(), DataType::float32, m.width);
  add_rows_of(m, data, wide.data());
  convert(wide.data(), DataType::float32, sum, m.type, m.width);
}

void LayerMath::take_rows(const Chosen& c, const void* matrix, void* out) {
  const std::size_t row = c.width * size_of(c.type);
  for (std::size_t i = 0; i < c.which.size(); ++i) {
    const std::size_t r = from(c.first, c.which[i]);
    if (r < c.count) {
      std::memcpy(at(out, i * row), at(matrix, r * row), row);
    } else {
      std::memset(at(out, i * row), 0, row);
    }
  }
}

void LayerMath::add_to_chosen(const Chosen& c, const void* rows, void* matrix) {
  const std::size_t row = c.width * size_of(c.type);
  const Combiner sum(c.type, ReduceKind::sum);
  for (std::size_t i = 0; i < c.which.size(); ++i) {
    const std::size_t r = from(c.first, c.which[i]);
    if (r >= c.count) continue;
    void* const to = at(matrix, r * row);
    const Source sources[] = {{.data = to}, {.data = at(rows, i * row)}};
    sum({&to, 1}, sources, c.width);
  }
}

void LayerMath::scale_rows(const Chosen& c, std::span<const double> factors, const void* matrix,
                           void* to, const void* with, double* products) {
  const std::size_t row = c.width * size_of(c.type);
  for (std::size_t i = 0; i < c.which.size(); ++i) {
    const void* const chosen = at(matrix, from(c.first, c.which[i]) * row);
    products[i] = expert::product_of(chosen, at(with, i * row), c.type, c.width);
    expert::scale_row(chosen, factors[i], at(to, i * row), c.type, c.width);
  }
}

void LayerMath::sum_chosen(const Chosen& c, std::size_t each, std::span<const double> factors,
                           const void* matrix, void* to) {
  const std::size_t row = c.width * size_of(c.type);
  std::vector<expert::Term> terms;
  for (std::size_t t = 0; t < c.which.size() / each; ++t) {
    terms.clear();
    for (std::size_t i = t * each; i < (t + 1) * each; ++i) {
      const std::size_t r = from(c.first, c.which[i]);
      if (r < c.count) terms.push_back({at(matrix, r * row), factors.empty() ? 1 : factors[i]});
    }
    expert::sum_rows(terms, at(to, t * row), c.type, c.width);
  }
}

void LayerMath::largest(const Logits& logits, std::span<double> most) {
  std::vector<double> row(logits.width);
  for (std::size_t i = 0; i < most.size(); ++i) {
    read_row(logits, i, row);
    most[i] = -std::numeric_limits<double>::infinity();
    // What is not a number shows in the sum.
    for (std::size_t j = 0; j < logits.columns; ++j) most[i] = std::max(most[i], row[j]);
  }
}

void LayerMath::exponentials(const Logits& logits, std::span<const double> most,
                             std::span<double> sums, std::span<double> of_targets) {
  std::vector<double> row(logits.width);
  for (std::size_t i = 0; i < most.size(); ++i) {
    read_row(logits, i, row);
    sums[i] = 0;
    for (std::size_t j = 0; j < logits.columns; ++j) sums[i] += std::exp(row[j] - most[i]);
    const std::size_t target = from(logits.first, logits.targets[i]);
    of_targets[i] = target < logits.columns ? row[target] - most[i] : 0;
  }
}

void LayerMath::cross_entropy_gradient(const Logits& logits, std::span<const double> log_sums,
                                       std::span<const double> factors, void* out) {
  std::vector<double> row(logits.width);
  for (std::size_t i = 0; i < log_sums.size(); ++i) {
    read_row(logits, i, row);
    const double factor = factors[i];
    for (std::size_t j = 0; j < row.size(); ++j) {
      const bool counts = factor != 0 && j < logits.columns;
      row[j] = counts ? factor * std::exp(row[j] - log_sums[i]) : 0;
    }
    const std::size_t target = from(logits.first, logits.targets[i]);
    if (factor != 0 && target < logits.columns) row[target] -= factor;
    convert(row.data(), DataType::float64, at(out, i * row.size() * size_of(logits.type)),
            logits.type, row.size());
  }
}

void LayerMath::merge(DataType type, std::size_t rows, std::size_t dim, const void* part,
                      const void* part_lse, void* out, void* lse) {
  sequence::merge(type, rows, dim, part, part_lse, out, lse);
}

void LayerMath::add_part(DataType type, std::size_t count, const void* part, void* sum) {
  sequence::add(type, count, part, sum);
}

void LayerMath::sum_heads(DataType type, std::size_t rows, std::size_t dim, std::size_t heads,
                          std::span<const std::size_t> head_of, const void* messages, void* own) {
  sequence::sum_heads(type, rows, dim, heads, head_of, messages, own);
}

void LayerMath::dot_rows(DataType type, std::size_t rows, std::size_t dim, const void* out,
                         const void* dout, void* delta) {
  sequence::dot_rows(type, rows, dim, out, dout, delta);
}

LayerMath& host_layer_math() {
  static LayerMath host;
  return host;
}

}  // namespace tutti::parallel
