#include "bindings/torch/check_finite.h"

#include <cmath>
#include <utility>

#include "core/convert.h"
#include "parallel/not_finite.h"

namespace tutti::libtorch {

CheckFinite::CheckFinite(std::vector<NamedTensor> parameters) : parameters_(std::move(parameters)) {
  for (const NamedTensor& p : parameters_) {
    hooks_.push_back(p.tensor.register_hook([this, &p](const Tensor& gradient) {
      if (!found_.empty() || !gradient.defined()) return;
      const Tensor dense = gradient.to_dense().contiguous().cpu();
      if (!all_finite(dense.const_data_ptr(), data_type(dense.scalar_type(), p.name),
                      static_cast<std::size_t>(dense.numel()))) {
        found_ = "the gradient of " + p.name;
      }
    }));
  }
}

CheckFinite::~CheckFinite() {
  for (std::size_t i = 0; i < hooks_.size(); ++i) parameters_[i].tensor.remove_hook(hooks_[i]);
}

void CheckFinite::look_at(double value, const std::string& what) {
  if (found_.empty() && !std::isfinite(value)) found_ = what;
}

void CheckFinite::refuse(parallel::Axis& world, const std::string& where) {
  parallel::refuse_not_finite(world, where, std::exchange(found_, {}));
}

}  // namespace tutti::libtorch
