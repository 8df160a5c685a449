#include "bindings/torch/domain.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/avg_pool1d.h>
#include <ATen/ops/avg_pool2d.h>
#include <ATen/ops/avg_pool3d.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool1d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/max_pool3d.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "bindings/torch/domain_cells.h"
#include "bindings/torch/torch_gpu.h"
#include "core/error.h"
#include "parallel/agreement.h"

namespace tutti::libtorch {

namespace engines = parallel::domain;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

struct HaloFunction : torch::autograd::Function<HaloFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x,
                        const std::shared_ptr<engines::Halo>& halo) {
    keep(*ctx, halo);
    Tensor padded = at::empty(sizes_of(x, halo->padded()), x.options());
    halo->insert(x.const_data_ptr(), padded.mutable_data_ptr());
    halo->exchange(padded.mutable_data_ptr());
    return padded;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto halo = kept_in<std::shared_ptr<engines::Halo>>(*ctx);
    Tensor padded = gradients[0].clone(at::MemoryFormat::Contiguous);
    Tensor dx = at::empty(sizes_of(padded, halo->own()), padded.options());
    halo->exchange_backward(padded.mutable_data_ptr());
    halo->extract(padded.const_data_ptr(), dx.mutable_data_ptr());
    return {dx, Tensor()};
  }
};

/// Sums over the ranks; `sums` is float64.
void add_up(parallel::Axis& axis, const Tensor& sums) {
  void* const data = sums.mutable_data_ptr();
  axis.run(
      parallel::call_of(Collective::all_reduce, data, data, static_cast<std::size_t>(sums.numel()),
                        DataType::float64, ReduceKind::sum),
      "batch norm");
}

/// [channels], as it broadcasts to `like`.
Tensor along(const Tensor& of_channels, const Tensor& like) {
  Sizes sizes(static_cast<std::size_t>(like.dim()), 1);
  sizes[1] = of_channels.numel();
  return of_channels.view(sizes);
}
/// The sum over all but the channels, in float64.
Tensor per_channel(const Tensor& x) {
  Sizes others{0};
  for (std::int64_t d = 2; d < x.dim(); ++d) others.push_back(d);
  return x.sum(others, false, at::kDouble);
}

struct NormFunction : torch::autograd::Function<NormFunction> {
  /// `mean` and `inverse`, of the deviation, are those of `count` cells of all ranks.
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, const Tensor& mean, const Tensor& inverse, double count,
                        parallel::Axis* axis) {
    const Tensor normed = (x - along(mean, x)) * along(inverse, x);
    ctx->save_for_backward({normed, weight, inverse});
    keep(*ctx, axis);
    ctx->saved_data["count"] = count;
    return normed * along(weight, x) + along(bias, x);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const variable_list kept = ctx->get_saved_variables();
    const Tensor &normed = kept[0], &weight = kept[1], &inverse = kept[2], &dy = gradients[0];
    const Tensor dbias = per_channel(dy), dweight = per_channel(dy * normed);
    const Tensor sums = at::cat({dbias, dweight});
    add_up(*kept_in<parallel::Axis*>(*ctx), sums);
    const auto means = (sums / ctx->saved_data["count"].toDouble()).to(dy.scalar_type()).chunk(2);
    const Tensor dx =
        (dy - along(means[0], dy) - normed * along(means[1], dy)) * along(weight * inverse, dy);
    return {dx,
            dweight.to(weight.scalar_type()),
            dbias.to(weight.scalar_type()),
            Tensor(),
            Tensor(),
            Tensor(),
            Tensor()};
  }
};

}  // namespace

DomainHalo::DomainHalo(parallel::Axis& axis, const engines::HaloShape& shape)
    : shape_(shape),
      device_(tensors_of(axis)),
      rank_(axis.rank()),
      engine_(std::make_shared<engines::Halo>(axis, shape)) {
  for (int rank = 0; rank < axis.size(); ++rank) {  // all know, and throw
    if (engines::cells(engine_->layout().output().box(rank)) > 0) continue;
    throw Error(ErrorCode::invalid_argument,
                fmt::format("halo '{}': rank {} has no cells of the output; give it larger blocks, "
                            "or the field to fewer ranks",
                            shape.name, axis.world_rank(rank)));
  }
}

void DomainHalo::check(const Tensor& x) const {
  const engines::Halo& halo = *engine_;
  const bool fits = x.defined() && x.device() == device_ &&
                    x.scalar_type() == scalar_type(shape_.type) &&
                    x.dim() == static_cast<std::int64_t>(halo.own().size()) + 2 &&
                    x.sizes() == at::IntArrayRef(sizes_of(x, halo.own())) &&
                    static_cast<std::size_t>(x.size(0) * x.size(1)) == shape_.outer;
  if (!fits) {
    std::string cells;
    for (const engines::Range& r : halo.own()) cells += fmt::format(", {}", r.size());
    throw Error(ErrorCode::invalid_argument,
                fmt::format("halo '{}' takes {} [samples, channels{}] with {} samples x channels, "
                            "on {}, not {}",
                            shape_.name, name(shape_.type), cells, shape_.outer, describe(device_),
                            describe(x)));
  }
}

Tensor DomainHalo::forward(const Tensor& x, double beyond) const {
  check(x);
  const engines::Halo& halo = *engine_;
  const Tensor padded = HaloFunction::apply(x.contiguous(), engine_);
  const engines::Box reads = halo.layout().reads(halo.output());
  const Tensor read = cells_of(padded, halo.padded(), reads);
  if (beyond == 0) return read;
  engines::Box field = halo.layout().in_field(rank_);
  Sizes padding;  // the last dimension first
  for (std::size_t d = reads.size(); d-- > 0;) {
    field[d] = engines::intersection(field[d], reads[d]);
    padding.insert(padding.end(), {field[d].begin - reads[d].begin, reads[d].end - field[d].end});
  }
  return at::constant_pad_nd(cells_of(read, reads, field), padding, beyond);
}

DomainPooling::DomainPooling(parallel::Axis& axis, const engines::HaloShape& shape, Kind kind)
    : shape_(shape), kind_(kind), halo_(axis, shape) {}

Tensor DomainPooling::forward(const Tensor& x) const {
  const bool max = kind_ == Kind::max;
  const Tensor read = halo_.forward(x, max ? -std::numeric_limits<double>::infinity() : 0);
  const Sizes kernel = each(shape_.stencils, &engines::Stencil::kernel),
              stride = each(shape_.stencils, &engines::Stencil::stride),
              dilation = each(shape_.stencils, &engines::Stencil::dilation), none(kernel.size(), 0);
  switch (kernel.size()) {
    case 1:
      return max ? at::max_pool1d(read, kernel, stride, none, dilation)
                 : at::avg_pool1d(read, kernel, stride);
    case 2:
      return max ? at::max_pool2d(read, kernel, stride, none, dilation)
                 : at::avg_pool2d(read, kernel, stride);
    default:
      return max ? at::max_pool3d(read, kernel, stride, none, dilation)
                 : at::avg_pool3d(read, kernel, stride);
  }
}

DomainBatchNorm::DomainBatchNorm(parallel::Axis& axis, const std::string& name,
                                 std::int64_t channels, at::ScalarType type, double epsilon,
                                 double momentum)
    : Module(name), axis_(axis), epsilon_(epsilon), momentum_(momentum) {
  const std::string line =
      fmt::format("batch norm of {} channels, {}", channels, tutti::name(data_type(type, name)));
  parallel::agree(axis, fmt::format("batch norm '{}'", name), {&line, 1});
  const at::TensorOptions options = at::TensorOptions().dtype(type).device(tensors_of(axis));
  weight = register_parameter("weight", at::ones({channels}, options));
  bias = register_parameter("bias", at::zeros({channels}, options));
  running_mean = register_buffer("running_mean", at::zeros({channels}, options));
  running_var = register_buffer("running_var", at::ones({channels}, options));
}

Tensor DomainBatchNorm::forward(const Tensor& x) {
  if (!x.defined() || x.dim() < 2 || x.size(1) != weight.numel() ||
      x.scalar_type() != weight.scalar_type()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("batch norm '{}' takes {} [samples, {}, cells ...], not {}", name(),
                            tutti::name(data_type(weight.scalar_type(), name())), weight.numel(),
                            describe(x)));
  }
  if (!is_training()) {
    return at::batch_norm(x, weight, bias, running_mean, running_var, false, 0, epsilon_, false);
  }
  Tensor mean, variance;
  double count = 0;
  {
    const at::NoGradGuard no_grad;
    const Tensor cells = at::ones({1}, x.options().dtype(at::kDouble)) *
                         (static_cast<double>(x.numel()) / static_cast<double>(x.size(1)));
    const Tensor sums = at::cat({per_channel(x), per_channel(x.to(at::kDouble).square()), cells});
    add_up(axis_, sums);
    count = sums[-1].item<double>();
    const auto means = (sums / count).narrow(0, 0, sums.numel() - 1).chunk(2);
    mean = means[0];
    variance = (means[1] - mean.square()).clamp_min(0);
    running_mean.mul_(1 - momentum_).add_(mean, momentum_);
    running_var.mul_(1 - momentum_).add_(variance, momentum_ * count / std::max(count - 1, 1.0));
  }
  const auto type = x.scalar_type();
  return NormFunction::apply(x, weight, bias, mean.to(type), (variance + epsilon_).rsqrt().to(type),
                             count, &axis_);
}

}  // namespace tutti::libtorch
