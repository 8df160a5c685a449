// An operation: the calls of a communicator that a function of the backend makes of its arguments,
// their memory, and the work to do when they are over.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/SmallVector.h>
#include <tutti/tutti.h>

#include <chrono>
#include <functional>
#include <span>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

namespace tutti::pytorch {

using Counts = std::vector<std::size_t>;

struct Step {
  Call call;
  Counts in_counts, out_counts;  // of the v-variants

  /// `call` with its counts and `timeout`; valid while this object lives and does not move.
  Call ready(std::chrono::nanoseconds timeout) const {
    Call c = call;
    c.timeout = timeout;
    c.in_counts = in_counts;
    c.out_counts = out_counts;
    return c;
  }
};

struct Operation {
  Operation(::c10d::OpType t, const char* its_name, at::Device d)
      : type(t), name(its_name), device(d) {}

  ::c10d::OpType type;
  const char* name;  // for profiles
  at::Device device;
  c10::SmallVector<Step, 1> steps;               // in this order, on all ranks
  c10::SmallVector<at::Tensor, 2> held;          // memory of the steps
  std::vector<at::Tensor> results;               // of the user
  std::vector<std::function<void()>> finishing;  // in this order, when all steps are over

  /// On any thread, whatever modes it is in. What it writes may be the tensors of a thread in
  /// torch.inference_mode(): only in that mode can those be written, others can be in it, too.
  void finish() const {
    const c10::InferenceMode mode;
    for (const auto& f : finishing) f();
  }
};

}  // namespace tutti::pytorch
