#include "bindings/torch/parameter_state.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace tutti::libtorch {

ParameterState read_state(const ReadState& read, const std::string& name, at::IntArrayRef sizes,
                          at::ScalarType type, std::size_t states) {
  ParameterState all{.name = name, .value = at::zeros(sizes, type), .state = {}, .steps = 0};
  for (std::size_t i = 0; i < states; ++i) all.state.push_back(at::zeros(sizes, type));
  read(all);
  if (all.state.size() != states) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the parameter {}: {} states were read, and the optimizer keeps {}",
                            name, all.state.size(), states));
  }
  const auto checked = [&](const std::string& what, const Tensor& t) {
    if (!t.defined() || t.sizes() != sizes) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("the parameter {}: {} was read as {}, and it is [{}]", name, what,
                              t.defined() ? describe(t) : "nothing", fmt::join(sizes, ", ")));
    }
    return t.detach().to(type).contiguous();
  };
  all.value = checked("its value", all.value);
  for (std::size_t i = 0; i < states; ++i) {
    all.state[i] = checked(fmt::format("the optimizer's state {}", i), all.state[i]);
  }
  return all;
}

}  // namespace tutti::libtorch
