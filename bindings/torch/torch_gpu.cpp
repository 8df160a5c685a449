#include "bindings/torch/torch_gpu.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <fmt/format.h>

#include "bindings/torch/tensors.h"
#include "core/error.h"

namespace tutti::libtorch {
namespace {

using parallel::AdamW;
using parallel::Optimizer;
using parallel::Sgd;

/// The operations of parallel/optimizer/kernels.h; torch may round one less (fused).
void update_adamw(const Tensor& p, const Tensor& m, const Tensor& v, const Tensor& gradient,
                  const parallel::kernels::AdamWConstants& c) {
  const Tensor g = gradient * c.scale;
  p.mul_(c.keep);
  m.mul_(c.beta1).add_(g * (1 - c.beta1));
  v.mul_(c.beta2).add_((g * g).mul_(1 - c.beta2));
  p.sub_((m / v.sqrt().mul_(c.root).add_(c.epsilon)).mul_(c.rate));
}

void update_sgd(const Tensor& p, const Tensor& momentum, const Tensor& gradient,
                const parallel::kernels::SgdConstants& c) {
  Tensor g = gradient * c.scale;
  if (c.decay != 0) g.add_(p * c.decay);
  if (momentum.defined()) {
    momentum.mul_(c.momentum).add_(g);
    g = c.nesterov ? g + momentum * c.momentum : momentum;
  }
  p.sub_(g * c.rate);
}

/// Elements in a row.
class Rows {
 public:
  explicit Rows(c10::Device device) : device_(device) {}
  Tensor operator()(const void* data, DataType type, std::size_t count) const {
    if (data == nullptr) return {};
    return tensor_over(const_cast<void*>(data), {static_cast<std::int64_t>(count)},
                       scalar_type(type), device_);
  }

 private:
  c10::Device device_;
};

}  // namespace

parallel::Device::Stream TorchGpu::current() {
  const c10::impl::VirtualGuardImpl guard(tensors_.type());
  return guard.getStream(tensors_).native_handle();
}

void TorchGpu::convert(DataType from, const void* in, DataType to, void* out, std::size_t count) {
  const at::NoGradGuard no_grad;
  const Rows rows(tensors_);
  if (count > 0) rows(out, to, count).copy_(rows(in, from, count));
}

void TorchGpu::add(DataType type, void* to, const void* values, unsigned divisor,
                   const void* before, std::size_t count) {
  if (count == 0) return;
  const at::NoGradGuard no_grad;
  const Rows rows(tensors_);
  Tensor sum = rows(values, type, count);
  if (divisor > 1) sum = sum / static_cast<double>(divisor);
  if (before != nullptr) sum = sum + rows(before, type, count);
  rows(to, type, count).copy_(sum);
}

double TorchGpu::sum_of_squares(DataType type, std::span<const Values> of) {
  const at::NoGradGuard no_grad;
  const Rows rows(tensors_);
  const Tensor sum = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(tensors_));
  for (const Values& v : of) {
    if (v.count > 0) sum.add_(rows(v.data, type, v.count).to(at::kDouble).square().sum());
  }
  return sum.item<double>();
}

void TorchGpu::update(const Optimizer& optimizer, const Optimizer::Slice& slice) {
  const auto* const adamw = dynamic_cast<const AdamW*>(&optimizer);
  const auto* const sgd = dynamic_cast<const Sgd*>(&optimizer);
  if (adamw == nullptr && sgd == nullptr) return optimizer.update_on_gpu(slice, current());
  const at::NoGradGuard no_grad;
  const Rows rows(tensors_);
  const Tensor master = rows(slice.master, slice.type, slice.count);
  const Tensor gradient =
      rows(slice.gradient, slice.gradient_type, slice.count).to(scalar_type(slice.type));
  const Tensor first = rows(slice.state[0], slice.type, slice.count);
  if (adamw != nullptr) {
    update_adamw(master, first, rows(slice.state[1], slice.type, slice.count), gradient,
                 adamw->constants(slice));
  } else {
    update_sgd(master, first, gradient, sgd->constants(slice));
  }
  if (slice.compute != nullptr) {
    rows(slice.compute, slice.compute_type, slice.count).copy_(master);
  }
}

c10::Device tensors_of(const parallel::Axis& axis) {
  if (!axis.device().is_gpu()) return c10::kCPU;
  const auto* const gpu = dynamic_cast<const TorchGpu*>(&axis.device());
  if (gpu != nullptr) return gpu->tensors();
  throw Error(ErrorCode::invalid_argument,
              fmt::format("the axis is on {} without PyTorch's arithmetic: modules need a TorchGpu "
                          "(Axis::use())",
                          axis.device().name()));
}

}  // namespace tutti::libtorch
