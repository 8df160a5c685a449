// The router of a layer of experts: from a token's logits, one for each expert, to the k experts
// that it goes to, with their weights. No communication, except for balance().
//
//     router.forward(logits, tokens, type, routed);        // routed.experts, routed.weights
//     experts.forward(x, routed, expert, y, saved);        // expert_parallel.h
//     experts.backward(dy, expert_backward, saved, dx, dweights);
//     router.backward(routed, dweights, {&balance, 0.01}, dlogits, type);
//
// The auxiliary loss that keeps experts equally busy is that of the Switch Transformer (Fedus,
// Zoph, Shazeer, 2021): experts x the sum over experts of (share of the tokens) x (mean
// probability). It is 1 where both are the same for all experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "../axis.h"

namespace tutti::parallel::expert {

/// Where tokens go: token t to experts[t * top_k + j], for j < top_k, the likeliest first.
struct Routing {
  std::size_t top_k = 1;
  std::vector<std::int64_t> experts;
  std::vector<double> weights;  // of the expert's result in the sum for the token
  std::size_t tokens() const { return top_k == 0 ? 0 : experts.size() / top_k; }
};

/// A routing with the softmax of its logits, tokens x experts, for the backward.
struct Routed : Routing {
  std::vector<double> probabilities;
};

/// How busy the experts are with the tokens of all ranks of an axis: the auxiliary loss's inputs.
struct Balance {
  std::vector<double> share;        // by expert: of all choices
  std::vector<double> probability;  // by expert: its mean over tokens
  double tokens = 0;                // of all ranks
  double loss() const;
};

/// The part of the auxiliary loss in a router's gradient: `scale` times the gradient of
/// balance->loss(). An average over N ranks divides it by N, as it does all gradients: pass N
/// times the loss's coefficient there.
struct BalanceGradient {
  const Balance* balance = nullptr;
  double scale = 0;
};

struct RouterOptions {
  std::size_t experts = 0;
  std::size_t top_k = 1;
  bool renormalizes = false;  // weights of a token add up to 1; else they are its probabilities
};

class Router {
 public:
  /// Throws Error(invalid_argument) unless 1 <= top_k <= experts; `name` is for that.
  Router(const std::string& name, RouterOptions options);

  /// `logits`: tokens x experts, of a floating-point type. Equal logits: the lower expert first.
  /// Computes in float64.
  void forward(const void* logits, std::size_t tokens, DataType type, Routed& routed) const;
  /// `dweights`: tokens x top_k, of the weights. `dlogits`, tokens x experts, is written. Throws
  /// Error(invalid_argument) if `routed` is not what a forward of this router has made, or dweights
  /// are of another number of tokens.
  void backward(const Routed& routed, std::span<const double> dweights, BalanceGradient balance,
                void* dlogits, DataType type) const;
  /// Collective: over the tokens of all ranks of `axis`. Each rank may have any number of tokens.
  /// One all-reduce of 2 x experts + 1 float64.
  Balance balance(Axis& axis, const Routed& routed) const;

 private:
  const std::string what_;
  const RouterOptions options_;
};

}  // namespace tutti::parallel::expert
