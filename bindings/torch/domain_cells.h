// Blocks of a field as tensors [samples, channels, cells ...], for the layers of domain.h.
#pragma once

#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "../../parallel/domain/halo.h"
#include "tensors.h"

namespace tutti::libtorch {

using Sizes = std::vector<std::int64_t>;

/// The sizes of a tensor with the samples and channels of `x` and the cells of `box`.
inline Sizes sizes_of(const Tensor& x, const parallel::domain::Box& box, std::int64_t channels) {
  Sizes sizes{x.size(0), channels};
  for (const parallel::domain::Range& r : box) sizes.push_back(r.size());
  return sizes;
}
inline Sizes sizes_of(const Tensor& x, const parallel::domain::Box& box) {
  return sizes_of(x, box, x.size(1));
}

/// The cells `part` of a tensor that has those of `whole`.
inline Tensor cells_of(Tensor x, const parallel::domain::Box& whole,
                       const parallel::domain::Box& part) {
  for (std::size_t d = 0; d < whole.size(); ++d) {
    x = x.narrow(static_cast<std::int64_t>(d) + 2, part[d].begin - whole[d].begin, part[d].size());
  }
  return x;
}

/// One member of each stencil, as torch's operations take them.
inline Sizes each(const std::vector<parallel::domain::Stencil>& stencils,
                  std::int64_t parallel::domain::Stencil::*member) {
  Sizes result;
  for (const parallel::domain::Stencil& s : stencils) result.push_back(s.*member);
  return result;
}

/// What a graph keeps for its backward, in the `saved_data` of a function's context.
template <class T>
struct Kept final : torch::CustomClassHolder {
  explicit Kept(T v) : value(std::move(v)) {}
  const T value;
};
template <class T>
void keep(torch::autograd::AutogradContext& context, T value) {
  context.saved_data["kept"] =
      c10::IValue::make_capsule(c10::make_intrusive<Kept<T>>(std::move(value)));
}
template <class T>
T kept_in(torch::autograd::AutogradContext& context) {
  return c10::static_intrusive_pointer_cast<Kept<T>>(context.saved_data["kept"].toCapsule())->value;
}

}  // namespace tutti::libtorch
