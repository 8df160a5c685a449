// A small GPT (pre-norm, learned positions, GELU) as a list of layers, each a
// function of a tensor: what data parallelism, sharding, tensor parallelism and
// pipelines all cut.
#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bindings/torch/attention.h"
#include "bindings/torch/checkpoint.h"
#include "parallel/axis.h"
#include "parallel/checkpoint/engine.h"
#include "shape.h"

namespace train {

using at::Tensor;

/// The ranks that share each layer. The default: every rank has whole layers.
struct Split {
  tutti::parallel::Axis* axis = nullptr;
  bool sequence = false;  // between the shared parts, each has a part of the rows
  /// Of ranks that share each sequence; null: every rank has whole sequences.
  std::shared_ptr<tutti::libtorch::ContextParallelAttention> attention;
  /// The ranks that divide the experts among each other; the ranks over which the experts are to be
  /// equally busy; and the coefficient of that loss. (One rank is an axis, too.)
  tutti::parallel::Axis* experts = nullptr;
  tutti::parallel::Axis* balanced = nullptr;
  double balance = 0;
};

struct Layer : torch::nn::Module {
  explicit Layer(const std::string& name) : torch::nn::Module(name) {}
  virtual Tensor forward(const Tensor& input) = 0;
  /// Whether this rank has a part of the parameter; else all ranks of the split
  /// have all of it.
  bool is_part(const Tensor& parameter) const { return !place(parameter).extent.empty(); }
  /// Its whole, and this rank's part of that: what a checkpoint has to know. It
  /// has a name where that differs from the parameter's.
  tutti::parallel::ParameterPlace place(const Tensor& parameter) const;

  struct Placed {
    Tensor parameter;
    tutti::parallel::ParameterPlace place;
  };
  /// This rank's experts, where other ranks have others: no part of the layer, as fewer ranks
  /// reduce their gradients. `around_experts` calls what computes with them.
  std::shared_ptr<Layer> experts;
  std::function<Tensor(const tutti::libtorch::Layer& body, const Tensor& x)> around_experts;

  std::vector<Placed> placed;  // all other parameters are whole
  Tensor tied;                 // another layer has the same one; undefined: none
};

/// Layers [first, last) of embedding, blocks, head: `shape.layers + 2` in all.
/// Their parameters depend on the seed and on what they are, not on which rank
/// makes them. Rows are sequences one after the other; with a split by P ranks,
/// their number is R / P where `sequence` cuts them, and V is that of the
/// rank's logits. T: of the positions that the rank has.
///   embedding   tokens [B, T] of int64    -> [R, C], R = B T
///   block       [R, C]                    -> [R, C]
///   head        [R, C]                    -> logits [B T, V]
/// Collective over the split.
std::vector<std::shared_ptr<Layer>> make_layers(const Shape& shape, std::uint64_t seed,
                                                std::int64_t first, std::int64_t last,
                                                const Split& split = {});

/// Mean cross entropy of logits and the tokens that come next [B, T].
/// Collective over the split.
using Loss = std::function<Tensor(const Tensor& logits, const Tensor& next)>;
Loss make_loss(const Shape& shape, const Split& split = {});

}  // namespace train
