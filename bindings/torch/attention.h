// Attention over a sequence that ranks share, for libtorch: a function of autograd on the engine of
// parallel/sequence. The kernel is torch's flash attention for CPUs; on a GPU matrix products, or
// the program's own. Tensors are on the axes' device.
//
//     ContextParallelAttention attention({.keys = &mesh.axis("ring")},
//                                        {.name = "attention", .sequence = 4096, .batch = 2,
//                                         .heads = 8, .dim = 64},
//                                        {.order = SequenceOrder::zigzag});
//     x = input.index_select(0, attention.positions());     // this rank's positions
//     out = attention.forward(q, k, v);                     // [rows, batch, heads, dim]
//
// One object serves all layers of the same shape, and any number of micro-batches at a time.
#pragma once

#include <memory>

#include "../../parallel/sequence/attention.h"
#include "tensors.h"

namespace tutti::libtorch {

/// Torch's flash attention for CPUs as the kernel of the engine, for float16, bfloat16, float32 and
/// float64: the scores of a block are never in memory as a whole. Any thread may call it.
parallel::sequence::Kernel flash_kernel();

/// Torch's matrix products as that kernel, on any device and for the same types: the scores of a
/// block are in memory as a whole.
parallel::sequence::Kernel matrix_kernel(c10::Device device);

class ContextParallelAttention {
 public:
  /// Collective over both axes, which outlive it and all graphs. Throws as the engine does.
  /// Without a kernel it takes flash_kernel() on the CPU, else matrix_kernel().
  ContextParallelAttention(parallel::sequence::AttentionAxes axes,
                           const parallel::sequence::AttentionShape& shape,
                           parallel::sequence::AttentionOptions options = {},
                           const parallel::sequence::Kernel& kernel = {});

  /// q [rows, batch, heads, dim]; k, v [rows, batch, kv_heads, dim]: of this rank's positions, of
  /// all heads -> [rows, batch, heads, dim]. Collective, and so is its backward: all ranks in the
  /// same order. Throws Error(invalid_argument) for a tensor of another shape or type.
  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v);
  /// The place in the sequence of each of this rank's rows: int64 [rows].
  Tensor positions() const;

  /// The engine, which has the memory.
  parallel::sequence::ContextParallelAttention& engine() { return *engine_; }

 private:
  friend struct AttentionFunction;
  const parallel::sequence::AttentionShape shape_;
  const c10::Device device_;
  const bool by_heads_;  // the engine then keeps what the backward needs
  const std::shared_ptr<parallel::sequence::ContextParallelAttention> engine_;  // graphs keep it
};

}  // namespace tutti::libtorch
