// Domain parallelism for libtorch: convolution, pooling and batch norm on the blocks of a field
// that ranks share, on the halos of parallel/domain. Tensors are [samples, channels, cells ...], of
// the rank's block, with 1 to 3 dimensions of cells, on the axis's device.
//
//     auto& field = mesh.axis({"y", "x"});
//     DomainConvolution conv(field, {.name = "conv",
//                                    .dimensions = {{"y", 512, 2}, {"x", 512, 2}},
//                                    .stencils = {{.kernel = 3, .padding = 1},
//                                                 {.kernel = 3, .padding = 1}},
//                                    .outer = samples * 8},
//                            8, 16);
//     DomainBatchNorm norm(field, "norm", 16);
//     y = norm.forward(conv.forward(x)).relu();              // of this rank's block
//
// A layer's output is the input block of the next one (HaloLayout::output()). Ranks of a field are
// data-parallel ranks for the weights: give DataParallel or FullyShard the fused axis. Its average
// is the gradient of the sum of losses if a rank's loss is its part of the sum times the ranks.
//
// Forwards and backwards are collective over the axis, in the same order on all ranks. A
// convolution computes its interior while its halo travels, and the gradients of its weights while
// those of the halo do. Poolings wait for their halos.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "../../parallel/domain/halo.h"
#include "tensors.h"

namespace tutti::libtorch {

/// The exchange as a function of autograd: its backward adds the gradients of the halo's cells to
/// those of their owners.
class DomainHalo {
 public:
  /// Collective over the axis, which outlives it and all graphs. Throws as the engine does, and
  /// Error(invalid_argument) on all ranks if one of them has no cells of the output.
  DomainHalo(parallel::Axis& axis, const parallel::domain::HaloShape& shape);
  /// The rank's block [samples, channels, own cells ...], with samples x channels = outer -> all
  /// that its output cells read [samples, channels, cells ...]: an operation without padding makes
  /// these of it. Beyond edges of zeros are zeros, or `beyond`.
  Tensor forward(const Tensor& x, double beyond = 0) const;
  /// Throws Error(invalid_argument) for what forward() does not take.
  void check(const Tensor& x) const;
  const std::shared_ptr<parallel::domain::Halo>& engine() const { return engine_; }

 private:
  const parallel::domain::HaloShape shape_;
  const c10::Device device_;
  const int rank_;
  const std::shared_ptr<parallel::domain::Halo> engine_;  // graphs keep it
};

class DomainConvolution : public torch::nn::Module {
 public:
  /// `shape.outer` is samples x `in`. Begins as torch's convolutions do; all ranks with the same
  /// seed have the same weights. With `overlap` it computes while halos travel, in more and smaller
  /// operations: for links between hosts. Inside of a host it is faster without.
  DomainConvolution(parallel::Axis& axis, const parallel::domain::HaloShape& shape, std::int64_t in,
                    std::int64_t out, bool has_bias = true, bool overlap = false);
  /// Cannot be differentiated twice.
  Tensor forward(const Tensor& x) const;
  const DomainHalo& halo() const { return halo_; }

  Tensor weight;  // [out, in, kernel ...]
  Tensor bias;    // [out], or undefined

 private:
  const parallel::domain::HaloShape shape_;
  const bool overlap_;
  const DomainHalo halo_;
};

class DomainPooling {
 public:
  /// As torch's: a maximum ignores what is beyond edges of zeros, a mean counts it.
  enum class Kind : unsigned char { max, mean };
  /// A mean has no dilation. `shape.outer` is samples x channels.
  DomainPooling(parallel::Axis& axis, const parallel::domain::HaloShape& shape,
                Kind kind = Kind::max);
  Tensor forward(const Tensor& x) const;
  const DomainHalo& halo() const { return halo_; }

 private:
  const parallel::domain::HaloShape shape_;
  const Kind kind_;
  const DomainHalo halo_;
};

/// Batch norm over the cells of all ranks of an axis: with that of the field alone, over a field's
/// samples; fused with the data-parallel one, over all samples (SyncBatchNorm).
class DomainBatchNorm : public torch::nn::Module {
 public:
  /// Throws Error(mismatch) on all ranks of the axis, which outlives it and all graphs, if their
  /// norms differ.
  DomainBatchNorm(parallel::Axis& axis, const std::string& name, std::int64_t channels,
                  at::ScalarType type = at::kFloat, double epsilon = 1e-5, double momentum = 0.1);
  /// An all-reduce of 2 x channels + 1 float64, and one of 2 x channels in the backward; in
  /// evaluation none: it uses the running averages.
  Tensor forward(const Tensor& x);

  Tensor weight, bias;               // [channels]
  Tensor running_mean, running_var;  // buffers

 private:
  parallel::Axis& axis_;
  const double epsilon_, momentum_;
};

}  // namespace tutti::libtorch
