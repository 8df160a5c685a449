// An attention of matrix products, for devices that torch has no flash attention for here.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>

#include <cmath>
#include <limits>

#include "bindings/torch/attention.h"

namespace tutti::libtorch {

namespace engines = parallel::sequence;

namespace {

std::int64_t of(std::size_t n) { return static_cast<std::int64_t>(n); }

/// A block's tensors, as [batch, key heads, query heads of each, rows, dim].
class Blocks {
 public:
  Blocks(const engines::Block& block, c10::Device device)
      : b_(block), device_(device), wide_(scalar_type(engines::wide(block.type))) {}

  Tensor queries(const void* data) const {
    return tensor_over(const_cast<void*>(data),
                       {of(b_.queries), of(b_.batch), of(b_.kv_heads), group(), of(b_.dim)},
                       scalar_type(b_.type), device_)
        .permute({1, 2, 3, 0, 4});
  }
  Tensor keys(const void* data) const {
    return tensor_over(const_cast<void*>(data),
                       {of(b_.keys), of(b_.batch), of(b_.kv_heads), 1, of(b_.dim)},
                       scalar_type(b_.type), device_)
        .permute({1, 2, 3, 0, 4});
  }
  /// Without the last dimension.
  Tensor sums(const void* data) const {
    return tensor_over(const_cast<void*>(data),
                       {of(b_.queries), of(b_.batch), of(b_.kv_heads), group()}, wide_, device_)
        .permute({1, 2, 3, 0});
  }
  Tensor wide(const Tensor& t) const { return t.to(wide_); }
  double scale() const { return 1 / std::sqrt(static_cast<double>(b_.dim)); }
  /// Of all queries and keys; minus infinity where a query does not see a key.
  Tensor scores() const {
    Tensor s = wide(queries(b_.q)).matmul(wide(keys(b_.k)).transpose(3, 4)).mul_(scale());
    if (!b_.causal) return s;
    const Tensor unseen =
        at::full({of(b_.queries), of(b_.keys)}, true, at::TensorOptions(at::kBool).device(device_))
            .triu(of(b_.keys) - of(b_.queries) + 1);
    return s.masked_fill_(unseen, -std::numeric_limits<double>::infinity());
  }

 private:
  std::int64_t group() const { return of(b_.heads / b_.kv_heads); }

  const engines::Block& b_;
  c10::Device device_;
  at::ScalarType wide_;
};

}  // namespace

engines::Kernel matrix_kernel(c10::Device device) {
  return {.forward =
              [device](const engines::ForwardBlock& f) {
                const at::NoGradGuard no_grad;
                const Blocks b(f.block, device);
                const Tensor scores = b.scores(), lse = scores.logsumexp(4);
                b.sums(f.lse).copy_(lse);
                b.queries(f.out).copy_(
                    (scores - lse.unsqueeze(4)).exp_().matmul(b.wide(b.keys(f.block.v))));
              },
          .backward =
              [device](const engines::BackwardBlock& g) {
                const at::NoGradGuard no_grad;
                const Blocks b(g.block, device);
                const Tensor shares = (b.scores() - b.sums(g.lse).unsqueeze(4)).exp_();
                const Tensor dout = b.wide(b.queries(g.dout));
                const Tensor by_keys = dout.matmul(b.wide(b.keys(g.block.v)).transpose(3, 4));
                const Tensor dscores =
                    (by_keys - b.sums(g.delta).unsqueeze(4)).mul_(shares).mul_(b.scale());
                b.queries(g.dq).copy_(dscores.matmul(b.wide(b.keys(g.block.k))));
                // A key head has the gradients of all query heads that use it.
                b.keys(g.dk).copy_(dscores.transpose(3, 4)
                                       .matmul(b.wide(b.queries(g.block.q)))
                                       .sum(2, /*keepdim=*/true));
                b.keys(g.dv).copy_(shares.transpose(3, 4).matmul(dout).sum(2, /*keepdim=*/true));
              }};
}

}  // namespace tutti::libtorch
