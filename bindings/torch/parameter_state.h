// What training goes on from: a parameter, and what the optimizer keeps of it. Whoever holds it,
// whole or in shards, saves and loads it in this form, by name: so one can go on with what the
// other has saved, on any number of ranks, and with the same bits on as many.
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

/// Puts it into a file, say.
using WriteState = std::function<void(const ParameterState&)>;
/// Fills in what was written for that name. All tensors are there, as large as they have to be;
/// they may be written to, or others may take their place.
using ReadState = std::function<void(ParameterState&)>;

/// What `read` makes of a parameter, for an optimizer that keeps so many states: contiguous tensors
/// of `type`. Throws Error(invalid_argument), with the name, for those of other sizes.
ParameterState read_state(const ReadState& read, const std::string& name, at::IntArrayRef sizes,
                          at::ScalarType type, std::size_t states);

}  // namespace tutti::libtorch
