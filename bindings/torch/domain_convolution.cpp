// A convolution on blocks of a field. Its forward computes the interior while the halo travels,
// then the border. Its backward computes the gradients of the weights while those of the halo
// travel.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <tuple>

#include "bindings/torch/domain.h"
#include "bindings/torch/domain_cells.h"
#include "bindings/torch/torch_gpu.h"
#include "core/error.h"

namespace tutti::libtorch {

namespace engines = parallel::domain;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

/// torch's convolution with these stencils, on cells that include all padding.
struct Operation {
  std::shared_ptr<engines::Halo> halo;  // graphs keep it
  Sizes stride, dilation, none;
  bool overlaps = false;

  Tensor forward(const Tensor& x, const Tensor& weight, const Tensor& bias) const {
    return at::convolution(x, weight, bias, stride, none, dilation, false, none, 1);
  }
  /// The gradients that `wanted` names: of x, the weight, the bias.
  std::tuple<Tensor, Tensor, Tensor> backward(const Tensor& dy, const Tensor& x,
                                              const Tensor& weight,
                                              std::array<bool, 3> wanted) const {
    return at::convolution_backward(dy, x, weight, at::IntArrayRef{weight.size(0)}, stride, none,
                                    dilation, false, none, 1, wanted);
  }
};

/// An exchange that is over when this is gone, also when the computation beside it has thrown.
class Exchange {
 public:
  explicit Exchange(engines::Halo& halo) : halo_(halo) {}
  ~Exchange() {
    if (over_) return;
    try {
      halo_.finish();
    } catch (const Error&) {
      // The computation has an error of its own.
    }
  }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  void finish() {
    over_ = true;
    halo_.finish();
  }

 private:
  engines::Halo& halo_;
  bool over_ = false;
};

/// A box in as many slabs as the exchange has turns, so that each turn begins beside a computation.
std::vector<engines::Box> slabs(const engines::Box& box) {
  std::vector<engines::Box> parts;
  if (engines::cells(box) == 0) return parts;
  const std::int64_t rows = box[0].size();
  const std::int64_t count = std::min(rows, static_cast<std::int64_t>(box.size()));
  for (std::int64_t i = 0; i < count; ++i) {
    parts.push_back(box);
    parts.back()[0] = {box[0].begin + rows * i / count, box[0].begin + rows * (i + 1) / count};
  }
  return parts;
}

struct ConvolutionFunction : torch::autograd::Function<ConvolutionFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& x, const Tensor& weight,
                        const Tensor& bias, const Operation& operation) {
    engines::Halo& halo = *operation.halo;
    const Tensor padded = at::empty(sizes_of(x, halo.padded()), x.options());
    halo.insert(x.const_data_ptr(), padded.mutable_data_ptr());
    const auto compute = [&](const engines::Box& box) {
      return operation.forward(cells_of(padded, halo.padded(), halo.layout().reads(box)), weight,
                               bias);
    };
    Tensor y;
    if (operation.overlaps) {
      y = at::empty(sizes_of(x, halo.output(), weight.size(0)), x.options());
      const auto fill = [&](const engines::Box& box) {
        cells_of(y, halo.output(), box).copy_(compute(box));
      };
      halo.start(padded.mutable_data_ptr());
      Exchange exchange(halo);
      for (const engines::Box& slab : slabs(halo.interior())) {
        fill(slab);
        halo.progress();
      }
      exchange.finish();
      for (const engines::Box& box : halo.border()) fill(box);
    } else {
      halo.exchange(padded.mutable_data_ptr());
      y = compute(halo.output());
    }
    ctx->save_for_backward({padded, weight});
    keep(*ctx, operation);
    ctx->saved_data["bias"] = bias.defined();
    return y;
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const variable_list saved = ctx->get_saved_variables();
    const Tensor &padded = saved[0], &weight = saved[1], &dy = gradients[0];
    const auto operation = kept_in<Operation>(*ctx);
    engines::Halo& halo = *operation.halo;
    // Whether x wants gradients is the same on all ranks.
    const bool of_x = ctx->needs_input_grad(0), of_weight = ctx->needs_input_grad(1),
               of_bias = ctx->saved_data["bias"].toBool() && ctx->needs_input_grad(2);
    const auto read_by = [&](const Tensor& whole, const engines::Box& outputs) {
      return cells_of(whole, halo.padded(), halo.layout().reads(outputs));
    };
    const auto compute = [&](const engines::Box& box, std::array<bool, 3> wanted) {
      return operation.backward(cells_of(dy, halo.output(), box), read_by(padded, box), weight,
                                wanted);
    };
    const bool beside = of_x && operation.overlaps;
    auto [dread, dweight, dbias] =
        compute(halo.output(), {of_x, of_weight && !beside, of_bias && !beside});
    if (!of_x) return {Tensor(), dweight, dbias, Tensor()};
    const Tensor dpadded = at::zeros(padded.sizes(), padded.options());
    read_by(dpadded, halo.output()).copy_(dread);
    halo.start_backward(dpadded.mutable_data_ptr());
    Exchange exchange(halo);
    for (const engines::Box& slab :
         beside && (of_weight || of_bias) ? slabs(halo.output()) : std::vector<engines::Box>()) {
      const auto [none, dw, db] = compute(slab, {false, of_weight, of_bias});
      if (of_weight) dweight = dweight.defined() ? dweight.add_(dw) : dw;
      if (of_bias) dbias = dbias.defined() ? dbias.add_(db) : db;
      halo.progress();
    }
    exchange.finish();
    const Tensor dx = at::empty(sizes_of(padded, halo.own()), padded.options());
    halo.extract(dpadded.const_data_ptr(), dx.mutable_data_ptr());
    return {dx, dweight, dbias, Tensor()};
  }
};

}  // namespace

DomainConvolution::DomainConvolution(parallel::Axis& axis, const engines::HaloShape& shape,
                                     std::int64_t in, std::int64_t out, bool has_bias, bool overlap)
    : Module(shape.name), shape_(shape), overlap_(overlap), halo_(axis, shape) {
  const at::NoGradGuard no_grad;
  Sizes sizes{out, in};
  const Sizes kernel = each(shape.stencils, &engines::Stencil::kernel);
  sizes.insert(sizes.end(), kernel.begin(), kernel.end());
  double inputs = static_cast<double>(in);
  for (const std::int64_t taps : kernel) inputs *= static_cast<double>(taps);
  const double most = 1 / std::sqrt(inputs);
  const auto uniform = [&](const Sizes& of) {
    return at::empty(of,
                     at::TensorOptions().dtype(scalar_type(shape.type)).device(tensors_of(axis)))
        .uniform_(-most, most);
  };
  weight = register_parameter("weight", uniform(sizes));
  if (has_bias) bias = register_parameter("bias", uniform({out}));
}

Tensor DomainConvolution::forward(const Tensor& x) const {
  halo_.check(x);
  const Operation operation{halo_.engine(), each(shape_.stencils, &engines::Stencil::stride),
                            each(shape_.stencils, &engines::Stencil::dilation),
                            Sizes(shape_.stencils.size(), 0), overlap_};
  return ConvolutionFunction::apply(x.contiguous(), weight, bias, operation);
}

}  // namespace tutti::libtorch
