#include "bindings/torch/attention.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/logaddexp.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/custom_function.h>

#include <tuple>
#include <utility>

#include "bindings/torch/torch_gpu.h"
#include "core/error.h"

namespace tutti::libtorch {

namespace engines = parallel::sequence;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

namespace {

/// A tensor of a block, as torch's kernel wants it: [batch, heads, rows, dim]. Of heads that use
/// the same key head, which lie one after the other, member `member` of each such group.
Tensor of_heads(const void* data, std::size_t rows, const engines::Block& b, std::size_t groups,
                std::size_t group, std::size_t member) {
  const auto of = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  return tensor_over(const_cast<void*>(data),
                     {of(rows), of(b.batch), of(groups), of(group), of(b.dim)}, scalar_type(b.type))
      .select(3, of(member))
      .permute({1, 2, 0, 3});
}
/// lse, as [batch, heads, queries].
Tensor lse_of(const void* data, const engines::Block& b, std::size_t member) {
  const auto of = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  return tensor_over(const_cast<void*>(data),
                     {of(b.queries), of(b.batch), of(b.kv_heads), of(b.heads / b.kv_heads)},
                     scalar_type(engines::wide(b.type)))
      .select(3, of(member))
      .permute({1, 2, 0});
}

/// Torch's causal mask has query i see keys 0 to i. So keys that all queries see are a part of
/// their own, without a mask.
struct Parts {
  explicit Parts(const engines::Block& b)
      : all(b.causal ? static_cast<std::int64_t>(b.keys - b.queries)
                     : static_cast<std::int64_t>(b.keys)),
        masked(static_cast<std::int64_t>(b.keys) - all) {}
  std::int64_t all, masked;  // keys
};

using OutAndLse = std::tuple<Tensor, Tensor>;

OutAndLse attend(const Tensor& q, const Tensor& k, const Tensor& v, const Parts& parts) {
  const auto part = [&](std::int64_t from, std::int64_t count, bool causal) {
    return at::_scaled_dot_product_flash_attention_for_cpu(q, k.narrow(2, from, count),
                                                           v.narrow(2, from, count), 0, causal);
  };
  if (parts.masked == 0) return part(0, parts.all, false);
  if (parts.all == 0) return part(0, parts.masked, true);
  const auto [out1, lse1] = part(0, parts.all, false);
  const auto [out2, lse2] = part(parts.all, parts.masked, true);
  const Tensor lse = at::logaddexp(lse1, lse2);
  const auto share = [&](const Tensor& out, const Tensor& of) {
    return out.to(lse.scalar_type()) * (of - lse).exp().unsqueeze(-1);
  };
  return {share(out1, lse1) + share(out2, lse2), lse};
}

void flash_forward(const engines::ForwardBlock& f) {
  const engines::Block& b = f.block;
  const at::NoGradGuard no_grad;
  const std::size_t group = b.heads / b.kv_heads;
  const Tensor k = of_heads(b.k, b.keys, b, b.kv_heads, 1, 0),
               v = of_heads(b.v, b.keys, b, b.kv_heads, 1, 0);
  for (std::size_t member = 0; member < group; ++member) {
    const auto [out, lse] =
        attend(of_heads(b.q, b.queries, b, b.kv_heads, group, member), k, v, Parts(b));
    of_heads(f.out, b.queries, b, b.kv_heads, group, member).copy_(out);
    lse_of(f.lse, b, member).copy_(lse);
  }
}

void flash_backward(const engines::BackwardBlock& f) {
  const engines::Block& b = f.block;
  const at::NoGradGuard no_grad;
  const std::size_t group = b.heads / b.kv_heads;
  const auto keys = [&](const void* data) { return of_heads(data, b.keys, b, b.kv_heads, 1, 0); };
  const Tensor k = keys(b.k), v = keys(b.v), dk = keys(f.dk), dv = keys(f.dv);
  const Parts parts(b);
  for (std::size_t member = 0; member < group; ++member) {
    const auto queries = [&](const void* data) {
      return of_heads(data, b.queries, b, b.kv_heads, group, member);
    };
    const Tensor q = queries(b.q), out = queries(f.out), dout = queries(f.dout), dq = queries(f.dq),
                 lse = lse_of(f.lse, b, member);
    bool first = true;
    const auto write = [](const Tensor& to, const Tensor& gradient, bool is_first) {
      is_first ? to.copy_(gradient) : to.add_(gradient);
    };
    const auto part = [&](std::int64_t from, std::int64_t count, bool causal) {
      if (count == 0) return;
      const auto [of_q, of_k, of_v] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
          dout, q, k.narrow(2, from, count), v.narrow(2, from, count), out, lse, 0, causal);
      write(dq, of_q, first);
      write(dk.narrow(2, from, count), of_k, member == 0);
      write(dv.narrow(2, from, count), of_v, member == 0);
      first = false;
    };
    part(0, parts.all, false);
    part(parts.all, parts.masked, true);
  }
}

c10::Device device_of(const engines::AttentionAxes& axes) {
  const parallel::Axis* const axis = axes.heads != nullptr ? axes.heads : axes.keys;
  return axis == nullptr ? c10::Device(c10::kCPU) : tensors_of(*axis);
}

/// Where the program brings none.
engines::Kernel kernel_on(c10::Device device, const engines::Kernel& own) {
  if (own.forward || own.backward) return own;
  return device.is_cpu() ? flash_kernel() : matrix_kernel(device);
}

/// Everything but tensors that the backward needs of a forward.
struct Kept final : torch::CustomClassHolder {
  explicit Kept(std::shared_ptr<engines::ContextParallelAttention> e) : engine(std::move(e)) {}
  const std::shared_ptr<engines::ContextParallelAttention> engine;  // outlives `saved`
  engines::ContextParallelAttention::Saved saved;
};

}  // namespace

parallel::sequence::Kernel flash_kernel() { return {flash_forward, flash_backward}; }

struct AttentionFunction : torch::autograd::Function<AttentionFunction> {
  static Tensor forward(AutogradContext* ctx, const Tensor& q, const Tensor& k, const Tensor& v,
                        ContextParallelAttention* a) {
    auto kept = c10::make_intrusive<Kept>(a->engine_);
    Tensor out = at::empty_like(q);
    a->engine_->forward(q.const_data_ptr(), k.const_data_ptr(), v.const_data_ptr(),
                        out.mutable_data_ptr(), kept->saved);
    // Else the engine refers to them, where they are.
    if (!a->by_heads_) ctx->save_for_backward({q, k, v, out});
    ctx->saved_data["kept"] = c10::IValue::make_capsule(std::move(kept));
    ctx->saved_data["key_sizes"] = k.sizes().vec();
    return out;
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& gradients) {
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(ctx->saved_data["kept"].toCapsule());
    const variable_list alive = ctx->get_saved_variables();  // which says if they were changed
    const Tensor dout = gradients[0].contiguous(), dq = at::empty_like(dout);
    const Tensor dk = at::empty(ctx->saved_data["key_sizes"].toIntVector(), dout.options()),
                 dv = at::empty_like(dk);
    kept->engine->backward(dout.const_data_ptr(), kept->saved, dq.mutable_data_ptr(),
                           dk.mutable_data_ptr(), dv.mutable_data_ptr());
    return {dq, dk, dv, Tensor()};
  }
};

ContextParallelAttention::ContextParallelAttention(engines::AttentionAxes axes,
                                                   const engines::AttentionShape& shape,
                                                   engines::AttentionOptions options,
                                                   const engines::Kernel& kernel)
    : shape_(shape),
      device_(device_of(axes)),
      by_heads_(axes.heads != nullptr && axes.heads->size() > 1),
      engine_(std::make_shared<engines::ContextParallelAttention>(
          axes, shape, kernel_on(device_, kernel), options)) {}

Tensor ContextParallelAttention::forward(const Tensor& q, const Tensor& k, const Tensor& v) {
  const auto check = [&](const char* what, const Tensor& t, std::size_t heads) {
    const std::vector<std::int64_t> sizes{
        static_cast<std::int64_t>(engine_->rows()), static_cast<std::int64_t>(shape_.batch),
        static_cast<std::int64_t>(heads), static_cast<std::int64_t>(shape_.dim)};
    if (t.defined() && t.sizes() == sizes && t.scalar_type() == scalar_type(shape_.type) &&
        t.device() == device_) {
      return;
    }
    throw Error(ErrorCode::invalid_argument,
                fmt::format("attention '{}' takes {} as {} [{}, {}, {}, {}], on {}, not {}",
                            shape_.name, what, name(shape_.type), sizes[0], sizes[1], sizes[2],
                            sizes[3], describe(device_), describe(t)));
  };
  const std::size_t key_heads = shape_.kv_heads == 0 ? shape_.heads : shape_.kv_heads;
  check("q", q, shape_.heads);
  check("k", k, key_heads);
  check("v", v, key_heads);
  return AttentionFunction::apply(q.contiguous(), k.contiguous(), v.contiguous(), this);
}

Tensor ContextParallelAttention::positions() const {
  Tensor result = at::empty({static_cast<std::int64_t>(engine_->rows())}, at::kLong);
  auto* const to = result.mutable_data_ptr<std::int64_t>();
  for (std::size_t row = 0; row < engine_->rows(); ++row) {
    to[row] = static_cast<std::int64_t>(engine_->position(row));
  }
  return result.to(device_);
}

}  // namespace tutti::libtorch
