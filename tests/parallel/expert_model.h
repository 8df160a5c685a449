// A small model with a layer of experts, in float64, for tests: trained by loops over tokens and
// experts on one rank, and by the engines on many.
//
//     y = x + the sum over the top k of p_e tanh(x A_e),  p = softmax(x R + b),   out = y D
//     loss = the mean over all tokens of |out - target|^2 / 2, and the balance of the experts
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "tests/comm/matrix_reference.h"

namespace tutti::test {

struct MoeCase {
  std::size_t top_k = 1;
  bool renormalizes = false;
  std::optional<double> capacity_factor{};
  double favour = 0;  // of expert 0 in the router's bias: 60 sends all first choices there
  double balance = 0.1;
  bool overlap = true;
  /// Which engine averages gradients: none but the experts' axis, data parallel ones, or sharded
  /// ones.
  enum class Data { none, replicated, sharded } data = Data::none;
  int ep = 0;  // ranks that share the experts; 0: all
};

inline constexpr std::size_t kMoeWidth = 6, kMoeExperts = 8, kMoeTokens = 64, kMoeSteps = 5;

/// All parameters after kMoeSteps: R, b, D, then A_0 and so on.
using MoeParameters = std::vector<Matrix>;

/// The model on one rank, as a person would write it. `ranks`: a capacity holds for each rank's
/// tokens.
MoeParameters train_moe_alone(const MoeCase& c, std::size_t ranks);
/// Collective: the same with the engines; all ranks' parameters on every rank.
MoeParameters train_moe(Communicator& world, const MoeCase& c);
/// The largest difference, relative to the largest element of its matrix.
double difference(const MoeParameters& a, const MoeParameters& b);

}  // namespace tutti::test
