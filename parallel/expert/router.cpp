#include "parallel/expert/router.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/convert.h"
#include "core/error.h"

namespace tutti::parallel::expert {
namespace {

void softmax(std::span<double> row) {
  const double largest = *std::ranges::max_element(row);
  double sum = 0;
  for (double& v : row) sum += v = std::exp(v - largest);
  for (double& v : row) v /= sum;
}

}  // namespace

double Balance::loss() const {
  const double products = std::inner_product(share.begin(), share.end(), probability.begin(), 0.0);
  return static_cast<double>(share.size()) * products;
}

Router::Router(const std::string& name, RouterOptions options)
    : what_(fmt::format("router '{}'", name)), options_(options) {
  if (options.top_k >= 1 && options.top_k <= options.experts) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: top {} of {} experts; take 1 to {} of them", what_, options.top_k,
                          options.experts, options.experts));
}

void Router::forward(const void* logits, std::size_t tokens, DataType type, Routed& routed) const {
  const std::size_t experts = options_.experts, k = options_.top_k;
  routed.top_k = k;
  routed.experts.resize(tokens * k);
  routed.weights.resize(tokens * k);
  routed.probabilities.resize(tokens * experts);
  convert(logits, type, routed.probabilities.data(), DataType::float64, tokens * experts);
  std::vector<std::int64_t> order(experts);
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::span row = std::span(routed.probabilities).subspan(t * experts, experts);
    softmax(row);
    std::iota(order.begin(), order.end(), std::int64_t{0});
    const auto likelier = [&](std::int64_t a, std::int64_t b) {
      const double p = row[static_cast<std::size_t>(a)], q = row[static_cast<std::size_t>(b)];
      return p > q || (p == q && a < b);
    };
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k), order.end(),
                      likelier);
    double sum = 0;
    for (std::size_t j = 0; j < k; ++j) {
      routed.experts[t * k + j] = order[j];
      sum += routed.weights[t * k + j] = row[static_cast<std::size_t>(order[j])];
    }
    for (std::size_t j = 0; j < k && options_.renormalizes; ++j) routed.weights[t * k + j] /= sum;
  }
}

void Router::backward(const Routed& routed, std::span<const double> dweights,
                      BalanceGradient balance, void* dlogits, DataType type) const {
  const std::size_t experts = options_.experts, k = options_.top_k, tokens = routed.tokens();
  if (routed.top_k != k || routed.experts.size() != tokens * k ||
      routed.weights.size() != tokens * k || routed.probabilities.size() != tokens * experts ||
      dweights.size() != tokens * k) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the backward of {} choices, {} weights and {} probabilities, with "
                            "{} gradients of weights; pass what its forward has made, and {} "
                            "gradients for each of its tokens",
                            what_, routed.experts.size(), routed.weights.size(),
                            routed.probabilities.size(), dweights.size(), k));
  }
  std::vector<double> result(tokens * experts);
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::span p = std::span(routed.probabilities).subspan(t * experts, experts);
    const std::span w = std::span(routed.weights).subspan(t * k, k);
    const std::span dw = dweights.subspan(t * k, k);
    const std::span dp = std::span(result).subspan(t * experts, experts);
    if (balance.balance != nullptr) {
      const double each =
          balance.scale * static_cast<double>(experts) / std::max(balance.balance->tokens, 1.0);
      for (std::size_t e = 0; e < experts; ++e) dp[e] = each * balance.balance->share[e];
    }
    double sum = 1, along = 0;  // of a token's probabilities that were chosen
    if (options_.renormalizes) {
      sum = 0;
      for (std::size_t j = 0; j < k; ++j) {
        sum += p[static_cast<std::size_t>(routed.experts[t * k + j])];
        along += w[j] * dw[j];
      }
    }
    for (std::size_t j = 0; j < k; ++j) {
      dp[static_cast<std::size_t>(routed.experts[t * k + j])] += (dw[j] - along) / sum;
    }
    const double mean = std::inner_product(p.begin(), p.end(), dp.begin(), 0.0);
    for (std::size_t e = 0; e < experts; ++e) dp[e] = p[e] * (dp[e] - mean);
  }
  convert(result.data(), DataType::float64, dlogits, type, result.size());
}

Balance Router::balance(Axis& axis, const Routed& routed) const {
  const std::size_t experts = options_.experts, tokens = routed.tokens();
  std::vector<double> sums(2 * experts + 1);  // choices, probabilities, tokens
  for (const std::int64_t e : routed.experts) ++sums[static_cast<std::size_t>(e)];
  for (std::size_t i = 0; i < tokens * experts; ++i) {
    sums[experts + i % experts] += routed.probabilities[i];
  }
  sums.back() = static_cast<double>(tokens);
  axis.run(call_of(Collective::all_reduce, sums.data(), sums.data(), sums.size(), DataType::float64,
                   ReduceKind::sum),
           "balance of experts");
  Balance b;
  b.tokens = sums.back();
  const double all = std::max(b.tokens, 1.0), choices = all * static_cast<double>(options_.top_k);
  for (std::size_t e = 0; e < experts; ++e) {
    b.share.push_back(sums[e] / choices);
    b.probability.push_back(sums[experts + e] / all);
  }
  return b;
}

}  // namespace tutti::parallel::expert
