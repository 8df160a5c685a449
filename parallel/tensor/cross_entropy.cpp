#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "parallel/tensor/vocabulary.h"

namespace tutti::parallel::tensor {

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

LayerMath::Logits VocabularyCrossEntropy::logits_of(const void* logits,
                                                    std::span<const Token> targets) const {
  return {type_,
          logits,
          vocabulary_.local,
          vocabulary_.real(),
          targets,
          static_cast<Token>(vocabulary_.begin)};
}

void VocabularyCrossEntropy::reduce(std::vector<double>& values, ReduceKind kind,
                                    const char* place) {
  try {
    Call call = call_of(Collective::all_reduce, values.data(), values.data(), values.size(),
                        DataType::float64, kind);
    call.label = label_;
    axis_.run(call, place);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}, {}: {}", what_, place, error.what()), error.rank());
  }
}

void VocabularyCrossEntropy::forward(const void* logits, std::span<const Token> targets,
                                     Saved& saved) {
  saved = {};
  check(targets);
  const std::size_t n = targets.size();
  axis_.device().check_memory(what_, {{"the logits", logits, n * vocabulary_.local}});
  const LayerMath::Logits of_rows = logits_of(logits, targets);
  std::vector<double> most(n), sums(2 * n);
  math().largest(of_rows, most);
  reduce(most, ReduceKind::max, "the largest logits");
  math().exponentials(of_rows, most, std::span(sums).first(n), std::span(sums).last(n));
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
  const std::size_t count = targets.size() * vocabulary_.local;
  axis_.device().check_memory(what_, {{"the logits", logits, count},
                                      {"the place for the logits' gradient", dlogits, count}});
  std::vector<double> factors(targets.size(), scale);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] == options_.ignore_index) factors[i] = 0;
  }
  math().cross_entropy_gradient(logits_of(logits, targets), saved.log_sum, factors, dlogits);
}

}  // namespace tutti::parallel::tensor
