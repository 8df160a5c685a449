#include "bindings/torch/torch_layer_math.h"

#include <ATen/TensorIndexing.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "bindings/torch/tensors.h"
#include "parallel/sequence/kernel.h"

namespace tutti::libtorch {
namespace {

using parallel::LayerMath;

constexpr double kLeast = -std::numeric_limits<double>::infinity();

std::int64_t of(std::size_t n) { return static_cast<std::int64_t>(n); }

/// rows x width.
Tensor matrix_over(const void* data, DataType type, std::size_t rows, std::size_t width,
                   c10::Device device) {
  return tensor_over(const_cast<void*>(data), {of(rows), of(width)}, scalar_type(type), device);
}
Tensor row_over(const void* data, DataType type, std::size_t count, c10::Device device) {
  return tensor_over(const_cast<void*>(data), {of(count)}, scalar_type(type), device);
}
at::ScalarType wide(DataType type) { return type == DataType::float64 ? at::kDouble : at::kFloat; }

/// On the device, with memory of their own.
Tensor numbers(std::span<const double> values, c10::Device device) {
  return at::from_blob(const_cast<double*>(values.data()), {of(values.size())}, at::kDouble)
      .to(device, at::kDouble, /*non_blocking=*/false, /*copy=*/true);
}
Tensor numbers(const std::vector<std::int64_t>& values, c10::Device device) {
  return at::from_blob(const_cast<std::int64_t*>(values.data()), {of(values.size())}, at::kLong)
      .to(device, at::kLong, /*non_blocking=*/false, /*copy=*/true);
}
/// To the host; waits.
void read(const Tensor& values, std::span<double> to) {
  at::from_blob(to.data(), {of(to.size())}, at::kDouble).copy_(values);
}

/// Which of some numbers are among `count` from `first` on, and their places there.
struct Here {
  template <class Counts>
  Here(std::span<const std::int64_t> numbers, std::int64_t first, std::size_t count,
       const Counts& counts) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const std::int64_t place = numbers[i] - first;
      if (place < 0 || place >= of(count) || !counts(i)) continue;
      which.push_back(of(i));
      places.push_back(place);
    }
  }
  Here(std::span<const std::int64_t> numbers, std::int64_t first, std::size_t count)
      : Here(numbers, first, count, [](std::size_t) { return true; }) {}
  explicit operator bool() const { return !which.empty(); }
  std::vector<std::int64_t> which, places;
};

/// Those that are no padding, in float64.
Tensor columns_of(const LayerMath::Logits& l, c10::Device device) {
  return matrix_over(l.data, l.type, l.targets.size(), l.width, device)
      .slice(1, 0, of(l.columns))
      .to(at::kDouble);
}

}  // namespace

void multiply(const parallel::tensor::Product& p, c10::Device device) {
  const auto matrix = [&](const void* data, std::size_t rows, std::size_t columns, bool transpose) {
    return transpose ? matrix_over(data, p.type, columns, rows, device).t()
                     : matrix_over(data, p.type, rows, columns, device);
  };
  const at::NoGradGuard no_grad;
  matrix(p.c, p.rows, p.columns, false)
      .addmm_(matrix(p.a, p.rows, p.inner, p.transpose_a),
              matrix(p.b, p.inner, p.columns, p.transpose_b), p.adds ? 1 : 0);
}

void TorchLayerMath::multiply(const parallel::tensor::Product& product) {
  libtorch::multiply(product, device_);
}

void TorchLayerMath::add_to_rows(const Matrix& m, const void* row, void* data) {
  const at::NoGradGuard no_grad;
  matrix_over(data, m.type, m.rows, m.width, device_).add_(row_over(row, m.type, m.width, device_));
}

void TorchLayerMath::add_rows(const Matrix& m, const void* data, void* sum) {
  const at::NoGradGuard no_grad;
  const Tensor to = row_over(sum, m.type, m.width, device_);
  const Tensor rows = matrix_over(data, m.type, m.rows, m.width, device_);
  to.copy_(to.to(wide(m.type)) + rows.sum(0, /*keepdim=*/false, wide(m.type)));
}

void TorchLayerMath::take_rows(const Chosen& c, const void* matrix, void* out) {
  const at::NoGradGuard no_grad;
  const Tensor to = matrix_over(out, c.type, c.which.size(), c.width, device_);
  const Here here(c.which, c.first, c.count);
  if (here.which.size() < c.which.size()) to.zero_();
  if (!here) return;
  const Tensor from = matrix_over(matrix, c.type, c.count, c.width, device_);
  to.index_copy_(0, numbers(here.which, device_),
                 from.index_select(0, numbers(here.places, device_)));
}

void TorchLayerMath::add_to_chosen(const Chosen& c, const void* rows, void* matrix) {
  const at::NoGradGuard no_grad;
  const Here here(c.which, c.first, c.count);
  if (!here) return;
  const Tensor from = matrix_over(rows, c.type, c.which.size(), c.width, device_);
  // In a fixed order, on GPUs too, as index_add_() is not.
  matrix_over(matrix, c.type, c.count, c.width, device_)
      .index_put_({numbers(here.places, device_)},
                  from.index_select(0, numbers(here.which, device_)),
                  /*accumulate=*/true);
}

void TorchLayerMath::scale_rows(const Chosen& c, std::span<const double> factors,
                                const void* matrix, void* to, const void* with, double* products) {
  const at::NoGradGuard no_grad;
  const Here here(c.which, c.first, c.count);
  if (!here) return;
  const std::size_t rows = c.which.size();
  const Tensor chosen = matrix_over(matrix, c.type, c.count, c.width, device_)
                            .index_select(0, numbers(here.places, device_))
                            .to(wide(c.type));
  const Tensor factor = numbers(factors, device_).to(wide(c.type)).unsqueeze(1);
  matrix_over(to, c.type, rows, c.width, device_).copy_(chosen * factor);
  row_over(products, DataType::float64, rows, device_)
      .copy_((chosen.to(at::kDouble) *
              matrix_over(with, c.type, rows, c.width, device_).to(at::kDouble))
                 .sum(1));
}

void TorchLayerMath::sum_chosen(const Chosen& c, std::size_t each, std::span<const double> factors,
                                const void* matrix, void* to) {
  const at::NoGradGuard no_grad;
  const std::size_t rows = c.which.size() / each;
  const Tensor from = matrix_over(matrix, c.type, c.count, c.width, device_),
               out = matrix_over(to, c.type, rows, c.width, device_);
  const Tensor sum = at::zeros({of(rows), of(c.width)}, out.options().dtype(wide(c.type)));
  for (std::size_t j = 0; j < each; ++j) {
    std::vector<std::int64_t> which;
    std::vector<double> of_row;
    for (std::size_t i = j; i < c.which.size(); i += each) which.push_back(c.which[i]);
    const Here here(which, c.first, c.count);
    if (!here) continue;
    Tensor term = from.index_select(0, numbers(here.places, device_)).to(wide(c.type));
    if (!factors.empty()) {
      for (const std::int64_t t : here.which) {
        of_row.push_back(factors[static_cast<std::size_t>(t) * each + j]);
      }
      term = term * numbers(std::span<const double>(of_row), device_).to(wide(c.type)).unsqueeze(1);
    }
    sum.index_put_({numbers(here.which, device_)}, term, /*accumulate=*/true);
  }
  out.copy_(sum);
}

void TorchLayerMath::largest(const Logits& logits, std::span<double> most) {
  std::ranges::fill(most, kLeast);
  if (logits.columns == 0 || most.empty()) return;
  const at::NoGradGuard no_grad;
  const Tensor x = columns_of(logits, device_);
  read(x.masked_fill(x.isnan(), kLeast).amax(1), most);
}

void TorchLayerMath::exponentials(const Logits& logits, std::span<const double> most,
                                  std::span<double> sums, std::span<double> of_targets) {
  std::ranges::fill(sums, 0);
  std::ranges::fill(of_targets, 0);
  if (logits.columns == 0 || most.empty()) return;
  const at::NoGradGuard no_grad;
  const Tensor x = columns_of(logits, device_) - numbers(most, device_).unsqueeze(1);
  read(x.exp().sum(1), sums);
  const Here here(logits.targets, logits.first, logits.columns);
  if (!here) return;
  std::vector<double> found(here.which.size());
  read(x.index({numbers(here.which, device_), numbers(here.places, device_)}), found);
  for (std::size_t i = 0; i < found.size(); ++i) {
    of_targets[static_cast<std::size_t>(here.which[i])] = found[i];
  }
}

void TorchLayerMath::cross_entropy_gradient(const Logits& logits, std::span<const double> log_sums,
                                            std::span<const double> factors, void* out) {
  if (log_sums.empty() || logits.width == 0) return;
  const at::NoGradGuard no_grad;
  const Tensor factor = numbers(factors, device_).unsqueeze(1);
  Tensor x = (columns_of(logits, device_) - numbers(log_sums, device_).unsqueeze(1)).exp_();
  x = x.mul_(factor).masked_fill_(factor == 0, 0);
  const Here here(logits.targets, logits.first, logits.columns,
                  [&](std::size_t i) { return factors[i] != 0; });
  if (here) {
    const Tensor rows = numbers(here.which, device_);
    x.index_put_({rows, numbers(here.places, device_)},
                 factor.squeeze(1).index_select(0, rows).neg(), /*accumulate=*/true);
  }
  const Tensor to = matrix_over(out, logits.type, log_sums.size(), logits.width, device_);
  to.slice(1, 0, of(logits.columns)).copy_(x);
  to.slice(1, of(logits.columns), of(logits.width)).zero_();
}

void TorchLayerMath::merge(DataType type, std::size_t rows, std::size_t dim, const void* part,
                           const void* part_lse, void* out, void* lse) {
  const at::NoGradGuard no_grad;
  const DataType sum_type = parallel::sequence::wide(type);
  const Tensor to = matrix_over(out, sum_type, rows, dim, device_);
  const Tensor old_lse = row_over(lse, sum_type, rows, device_);
  const Tensor new_lse = row_over(part_lse, sum_type, rows, device_);
  const Tensor most = at::maximum(old_lse, new_lse), unseen = most == kLeast;
  const Tensor old = (old_lse - most).exp(), come = (new_lse - most).exp(), both = old + come;
  const Tensor merged =
      to * (old / both).unsqueeze(1) +
      matrix_over(part, type, rows, dim, device_).to(wide(type)) * (come / both).unsqueeze(1);
  to.copy_(at::where(unseen.unsqueeze(1), to, merged));
  old_lse.copy_(at::where(unseen, old_lse, most + both.log()));
}

void TorchLayerMath::add_part(DataType type, std::size_t count, const void* part, void* sum) {
  const at::NoGradGuard no_grad;
  row_over(sum, parallel::sequence::wide(type), count, device_)
      .add_(row_over(part, type, count, device_));
}

void TorchLayerMath::sum_heads(DataType type, std::size_t rows, std::size_t dim, std::size_t heads,
                               std::span<const std::size_t> head_of, const void* messages,
                               void* own) {
  const at::NoGradGuard no_grad;
  const Tensor from =
                   tensor_over(const_cast<void*>(messages), {of(head_of.size()), of(rows), of(dim)},
                               scalar_type(type), device_),
               to = tensor_over(own, {of(rows), of(heads), of(dim)}, scalar_type(type), device_);
  for (std::size_t h = 0; h < heads; ++h) {
    Tensor sum = at::zeros({of(rows), of(dim)}, from.options().dtype(wide(type)));
    for (std::size_t r = 0; r < head_of.size(); ++r) {
      if (head_of[r] == h) sum.add_(from[of(r)]);
    }
    to.select(1, of(h)).copy_(sum);
  }
}

void TorchLayerMath::dot_rows(DataType type, std::size_t rows, std::size_t dim, const void* out,
                              const void* dout, void* delta) {
  const at::NoGradGuard no_grad;
  const Tensor x = matrix_over(out, type, rows, dim, device_).to(wide(type)),
               y = matrix_over(dout, type, rows, dim, device_).to(wide(type));
  row_over(delta, parallel::sequence::wide(type), rows, device_).copy_((x * y).sum(1));
}

}  // namespace tutti::libtorch
