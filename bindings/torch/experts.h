// A layer of experts (a mixture of experts) for libtorch, on the engine of parallel/expert: a
// router chooses top k experts for each token, rows of tokens travel to the ranks of their experts,
// and the results come back and are added up.
//
//     MixtureOfExperts moe(mesh.axis("ep"),
//                          {.name = "moe", .experts = 8, .width = 512, .top_k = 2},
//                          feed_forward(512, 2048));
//     y = moe.forward(x);                                    // [tokens, 512] -> [tokens, 512]
//
// Ranks that have the same experts share them, others do not: so the experts are no child of the
// layer, but a module beside it, for an engine of its own.
//
//     Mesh mesh(world, {{"edp", -1}, {"ep", 4}}, {{"edp", "ep"}});
//     DataParallel rest(mesh.axis({"edp", "ep"}), model);    // router and all other layers
//     DataParallel experts(mesh.axis("edp"), *moe.experts);
//     loss.backward();
//     rest.finish(), experts.finish();
//
// Tokens are on the axis's device; experts and the router are moved there as modules are. The
// router chooses on the host. Both averages are those of the loss's mean over the tokens of all
// ranks: the layer multiplies gradients of experts by ExpertParallel::gradient_scale() itself.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "../../parallel/expert/expert_parallel.h"
#include "../../parallel/expert/router.h"
#include "checkpoint.h"
#include "linear.h"

namespace tutti::libtorch {

/// One expert: [rows, width] -> [rows, width], of any number of rows, also 0.
struct Expert {
  std::shared_ptr<torch::nn::Module> module;
  Layer forward;
};
/// Makes expert `number` of all.
using MakeExpert = std::function<Expert(std::int64_t number)>;
/// Linear, SiLU, Linear, with biases.
MakeExpert feed_forward(std::int64_t width, std::int64_t hidden, at::ScalarType type = at::kFloat);

/// The options of the mixture. The same on all ranks.
struct MixtureOptions {
  bool renormalizes = false;  // a token's weights add up to 1; else they are its probabilities
  /// The auxiliary loss that keeps experts equally busy, times this, is a part of the loss: the
  /// layer's backward adds its gradient. (A micro-batch's loss that is divided by their number
  /// takes the coefficient divided, too.) 0: none, and no communication for it.
  double balance = 0;
  /// The experts are to be equally busy over the tokens of these ranks; null: of the axis of the
  /// experts. It outlives the layer and all graphs.
  parallel::Axis* balance_axis = nullptr;
  parallel::expert::ExpertOptions engine{};
};

class MixtureOfExperts : public torch::nn::Module {
 public:
  /// Collective over `axis`, which outlives it and all graphs. The router begins as Linear does.
  /// Each rank makes all experts in their order, and keeps its own: with equal seeds a layer begins
  /// alike however many ranks share it. Throws as the engine does.
  MixtureOfExperts(parallel::Axis& axis, const parallel::expert::ExpertShape& shape,
                   const MakeExpert& make, const MixtureOptions& options = {});

  /// [..., width] -> [..., width]; each rank has any number of tokens. Collective, and so is its
  /// backward: all ranks in the same order. An expert gets its rows in one call, in the forward,
  /// and its gradients in the backward, zeros if no token chose it. If an expert throws, all ranks
  /// of the axis do. Throws Error(invalid_argument) for a tensor of another width or type.
  Tensor forward(const Tensor& x);

  /// Of the last forward: the auxiliary loss (1: all equally busy; 0: `balance` is 0), rows that
  /// each of this rank's experts got, and choices that found no place.
  double balance_loss() const;
  std::span<const std::size_t> received() const;
  std::size_t dropped() const;

  const std::shared_ptr<Linear> router;              // without a bias
  const std::shared_ptr<torch::nn::Module> experts;  // this rank's, by their numbers

 private:
  friend struct MixtureFunction;
  struct Parts;
  struct Kept;
  const std::shared_ptr<Parts> parts_;  // graphs keep it, too
};

}  // namespace tutti::libtorch
