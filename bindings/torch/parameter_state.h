// The training state of a parameter: its value, and the optimizer's states. FullyShard and
// LocalOptimizer save and load it in this form, by name. So each can go on with the state of the
// other, on any number of ranks; on the same number, with the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tensors.h"

namespace tutti::libtorch {

struct ParameterState {
  std::string name;
  Tensor value;               // all elements, of the type that the optimizer updates
  std::vector<Tensor> state;  // the optimizer's, each as large; none before its first step
  std::uint64_t steps = 0;    // updates that the optimizer has made of it
};

/// Writes the state into a file, for instance.
using WriteState = std::function<void(const ParameterState&)>;
/// Fills in the state that was written for that name. All tensors exist, with the right sizes;
/// write to them, or replace them.
using ReadState = std::function<void(ParameterState&)>;

/// The result of `read` for a parameter and an optimizer with this many states: contiguous tensors
/// of `type`. Throws Error(invalid_argument), with the name, for tensors of other sizes.
ParameterState read_state(const ReadState& read, const std::string& name, at::IntArrayRef sizes,
                          at::ScalarType type, std::size_t states);

}  // namespace tutti::libtorch
