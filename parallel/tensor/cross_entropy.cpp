#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/convert.h"
#include "core/error.h"
#include "parallel/tensor/vocabulary.h"

namespace tutti::parallel::tensor {
namespace {

/// Row `i` of a matrix, widened.
void read_row(const void* matrix, std::size_t i, DataType type, std::vector<double>& row) {
  convert(static_cast<const std::byte*>(matrix) + i * row.size() * size_of(type), type, row.data(),
          DataType::float64, row.size());
}

}  // namespace

double VocabularyCrossEntropy::Saved::mean() const {
  double sum = 0;
  for (const double l : loss) sum += l;
  return counted == 0 ? 0 : sum / static_cast<double>(counted);
}

void VocabularyCrossEntropy::check(std::span<const Token> targets) const {
  for (std::size_t i = 0; i < targets.size(); ++i) {
    const Token t = targets[i];
    if (t == options_.ignore_index) continue;
    if (t >= 0 && static_cast<std::size_t>(t) < vocabulary_.tokens) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: target {} at position {} is outside of the vocabulary, which has "
                            "{} tokens from 0, and is not the ignored one, {}",
                            what_, t, i, vocabulary_.tokens, options_.ignore_index));
  }
}

void VocabularyCrossEntropy::reduce(std::vector<double>& values, ReduceKind kind,
                                    const char* label) {
  try {
    axis_.run(call_of(Collective::all_reduce, values.data(), values.data(), values.size(),
                      DataType::float64, kind),
              label);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}, {}: {}", what_, label, error.what()), error.rank());
  }
}

void VocabularyCrossEntropy::forward(const void* logits, std::span<const Token> targets,
                                     Saved& saved) {
  check(targets);
  const std::size_t n = targets.size(), columns = vocabulary_.real();
  std::vector<double> row(vocabulary_.local), sums(2 * n);
  std::vector<double> most(n, -std::numeric_limits<double>::infinity());
  for (std::size_t i = 0; i < n; ++i) {
    read_row(logits, i, type_, row);
    // What is not a number shows in the sum.
    for (std::size_t j = 0; j < columns; ++j) most[i] = std::max(most[i], row[j]);
  }
  reduce(most, ReduceKind::max, "the largest logits");
  for (std::size_t i = 0; i < n; ++i) {
    read_row(logits, i, type_, row);
    for (std::size_t j = 0; j < columns; ++j) sums[i] += std::exp(row[j] - most[i]);
    const std::size_t target = static_cast<std::size_t>(targets[i]) - vocabulary_.begin;
    if (targets[i] != options_.ignore_index && target < columns) {
      sums[n + i] = row[target] - most[i];
    }
  }
  reduce(sums, ReduceKind::sum, "the sums of exponentials and the targets' logits");
  saved.loss.assign(n, 0);
  saved.log_sum.resize(n);
  saved.counted = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double log_sum = std::log(sums[i]);
    saved.log_sum[i] = log_sum + most[i];
    if (targets[i] == options_.ignore_index) continue;
    saved.loss[i] = log_sum - sums[n + i];
    ++saved.counted;
  }
}

void VocabularyCrossEntropy::backward(const void* logits, std::span<const Token> targets,
                                      const Saved& saved, double scale, void* dlogits) const {
  check(targets);
  if (saved.log_sum.size() != targets.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the backward of {} targets, and the forward had {}", what_,
                            targets.size(), saved.log_sum.size()));
  }
  const std::size_t columns = vocabulary_.real(), row_bytes = vocabulary_.local * size_of(type_);
  std::vector<double> row(vocabulary_.local);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    read_row(logits, i, type_, row);
    const double factor = targets[i] == options_.ignore_index ? 0 : scale;
    for (std::size_t j = 0; j < row.size(); ++j) {
      const bool counts = factor != 0 && j < columns;
      row[j] = counts ? factor * std::exp(row[j] - saved.log_sum[i]) : 0;
    }
    const std::size_t target = static_cast<std::size_t>(targets[i]) - vocabulary_.begin;
    if (factor != 0 && target < columns) row[target] -= factor;
    convert(row.data(), DataType::float64, static_cast<std::byte*>(dlogits) + i * row_bytes, type_,
            row.size());
  }
}

}  // namespace tutti::parallel::tensor
