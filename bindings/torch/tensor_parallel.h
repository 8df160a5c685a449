// Tensor parallelism for libtorch: layers that the ranks of an axis share, as torch modules on the
// engines of parallel/tensor. P is the number of ranks; a rank has its part of each weight.
//
//     ColumnParallelLinear up(axis, "up", C, 4 * C);       // [rows, C]     -> [rows, 4 C / P]
//     RowParallelLinear down(axis, "down", 4 * C, C);      // [rows, 4 C / P] -> [rows, C]
//
// Parameters, inputs and results are on the axis's device: the CPU, or a TorchGpu's. Inputs are
// matrices of rows, the same on all ranks. With `sequence`, activations outside of a
// column and a row layer are cut into P equal runs of rows, one for each rank: [rows / P, C].
//
// Parameters begin as those of Linear and torch::nn::Embedding do: ranks with the same seed have
// their parts of one rank's layer, and draw as many random numbers. Gradients of parameters that
// all ranks have whole (row biases, norms) are equal on all of them; with `sequence` they cover a
// rank's rows, and parallel/hybrid adds them up. Constructors are collective, and throw as the
// engines do: Error(mismatch) if ranks differ, Error(invalid_argument) for sizes that P does not
// divide, with the layer and the sizes. A layer may be gone before the backward of its results; its
// axis may not.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "../../parallel/tensor/linear.h"
#include "../../parallel/tensor/vocabulary.h"
#include "gradient_places.h"
#include "tensors.h"

namespace tutti::libtorch {

class ColumnParallelLinear : public torch::nn::Module, public MakesGradients {
 public:
  ColumnParallelLinear(parallel::Axis& axis, const std::string& name, std::int64_t in,
                       std::int64_t out, at::ScalarType type = at::kFloat,
                       parallel::tensor::ColumnOptions options = {});
  /// [rows, in] (with sequence [rows / P, in]) -> [rows, out / P] (with gather_output [rows, out]).
  Tensor forward(const Tensor& x);

  Tensor weight;  // [out / P, in]
  Tensor bias;    // [out / P]

 private:
  friend struct ColumnFunction;
  const std::int64_t ranks_, columns_;
  const at::ScalarType type_;
  const c10::Device device_;
  const parallel::tensor::ColumnOptions options_;
  const std::shared_ptr<parallel::tensor::ColumnParallelLinear> engine_;  // graphs keep it, too
};

class RowParallelLinear : public torch::nn::Module, public MakesGradients {
 public:
  RowParallelLinear(parallel::Axis& axis, const std::string& name, std::int64_t in,
                    std::int64_t out, at::ScalarType type = at::kFloat,
                    parallel::tensor::RowOptions options = {});
  /// [rows, in / P] (without input_is_parallel [rows, in]) -> [rows, out] (with sequence
  /// [rows / P, out]).
  Tensor forward(const Tensor& x);

  Tensor weight;  // [out, in / P]
  Tensor bias;    // [out], the same on all ranks

 private:
  friend struct RowFunction;
  const std::int64_t ranks_;
  const at::ScalarType type_;
  const c10::Device device_;
  const parallel::tensor::RowOptions options_;
  const std::shared_ptr<parallel::tensor::RowParallelLinear> engine_;
};

class VocabParallelEmbedding : public torch::nn::Module, public MakesGradients {
 public:
  VocabParallelEmbedding(parallel::Axis& axis, const std::string& name, std::int64_t tokens,
                         std::int64_t width, at::ScalarType type = at::kFloat,
                         parallel::tensor::EmbeddingOptions options = {});
  /// ids: int64 or int32, of any shape, the same on all ranks, on the CPU or the device -> [ids,
  /// width] (with sequence [ids / P, width]).
  Tensor forward(const Tensor& ids);
  const parallel::tensor::Vocabulary& vocabulary() const { return engine_->vocabulary(); }

  Tensor weight;  // [vocabulary().local, width]

 private:
  friend struct EmbeddingFunction;
  const std::int64_t ranks_;
  const at::ScalarType type_;
  const c10::Device device_;
  const parallel::tensor::EmbeddingOptions options_;
  const std::shared_ptr<parallel::tensor::VocabularyEmbedding> engine_;
};

/// The mean cross entropy of logits; the ranks divide the columns of the logits among each other.
class VocabParallelCrossEntropy {
 public:
  VocabParallelCrossEntropy(parallel::Axis& axis, const std::string& name, std::int64_t tokens,
                            at::ScalarType type = at::kFloat,
                            parallel::tensor::CrossEntropyOptions options = {});
  /// logits [rows, vocabulary().local], targets int64 or int32 [rows] -> a scalar, the same on all
  /// ranks.
  Tensor forward(const Tensor& logits, const Tensor& targets);
  const parallel::tensor::Vocabulary& vocabulary() const { return engine_->vocabulary(); }

 private:
  friend struct CrossEntropyFunction;
  const std::string name_;
  const at::ScalarType type_;
  const c10::Device device_;
  const std::shared_ptr<parallel::tensor::VocabularyCrossEntropy> engine_;
};

}  // namespace tutti::libtorch
