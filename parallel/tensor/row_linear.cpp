#include <fmt/format.h>

#include <utility>

#include "parallel/agreement.h"
#include "parallel/tensor/linear.h"
#include "parallel/tensor/overlap.h"

namespace tutti::parallel::tensor {
namespace {

std::string described(const LinearShape& s, const RowOptions& o) {
  return fmt::format(
      "row parallel '{}' of {} inputs and {} outputs, {}, input_is_parallel {}, sequence {}, "
      "pieces {}",
      s.name, s.in, s.out, name(s.type), o.input_is_parallel, o.sequence, o.pieces);
}

}  // namespace

RowParallelLinear::RowParallelLinear(Axis& axis, LinearShape shape, RowOptions options,
                                     Multiply multiply)
    : axis_(axis),
      shape_(std::move(shape)),
      options_(options),
      multiply_(std::move(multiply)),
      what_(fmt::format("linear '{}'", shape_.name)),
      mapper_(axis, what_),
      memory_(MemoryPool::Reuse::no, axis.device()) {
  const std::string line = described(shape_, options_);
  agree(axis_, what_, {&line, 1});
  math_ = &layer_math_of(axis_.device(), what_);
  if (!multiply_) multiply_ = [math = math_](const Product& p) { math->multiply(p); };
  local_in_ = share_of(axis_, what_, "inputs", shape_.in);
}

void RowParallelLinear::forward(const void* x, std::size_t rows, LinearConstants parameters,
                                void* y) {
  const DataType type = shape_.type;
  const std::size_t element = size_of(type);
  axis_.device().check_memory(what_, {{"the input", x, rows * local_in_},
                                      {"the weight", parameters.weight, weight_count()},
                                      {"the bias", parameters.bias, shape_.out, Device::kMayBeNull},
                                      {"the output", y, rows * shape_.out}});
  if (!options_.input_is_parallel) {
    std::byte* const slice = grown(slice_, rows * local_in_ * element, memory_);
    mapper_.run(Operation::split, x, slice, {rows, shape_.in, 1}, type);
    x = slice;
  }
  const Rows outputs{rows, shape_.out, type, options_.pieces};
  const auto make = [&](void* to, std::size_t first, std::size_t count) {
    multiply_({.type = type,
               .rows = count,
               .columns = shape_.out,
               .inner = local_in_,
               .a = static_cast<const std::byte*>(x) + first * local_in_ * element,
               .b = parameters.weight,
               .transpose_b = true,
               .c = to});
  };
  InFlight reductions(what_, mapper_.label(), options_.pieces > 1);
  std::size_t mine = rows;
  if (options_.sequence) {
    mine = share_of(axis_, what_, "rows", rows);
    reduce_scatter_rows(axis_, outputs, y, grown(pieces_, outputs.bytes(), memory_), reductions,
                        make);
  } else {
    reduce_rows(axis_, outputs, y, reductions, make);
  }
  reductions.wait();
  if (parameters.bias == nullptr) return;
  math_->add_to_rows({type, mine, shape_.out}, parameters.bias, y);
}

void RowParallelLinear::backward(const void* dy, const void* x, std::size_t rows,
                                 LinearConstants parameters, void* dx, LinearGradients gradients) {
  const DataType type = shape_.type;
  const std::size_t element = size_of(type);
  const Rows outputs{rows, shape_.out, type, options_.pieces};
  const std::size_t mine = options_.sequence ? share_of(axis_, what_, "rows", rows) : rows;
  axis_.device().check_memory(
      what_,
      {{"the output's gradient", dy, mine * shape_.out},
       {"the input", x, rows * local_in_,
        options_.input_is_parallel && gradients.weight == nullptr},
       {"the weight", parameters.weight, weight_count(), dx == nullptr},
       {"the place for the input's gradient", dx, rows * local_in_, Device::kMayBeNull},
       {"the place for the weight's gradient", gradients.weight, weight_count(),
        Device::kMayBeNull},
       {"the place for the bias's gradient", gradients.bias, shape_.out, Device::kMayBeNull}});
  bias_gradient(axis_.device(), outputs, mine, dy, gradients);
  auto* local_dx = static_cast<std::byte*>(dx);
  if (!options_.input_is_parallel) {
    std::byte* const slice = grown(slice_, rows * local_in_ * element, memory_);
    mapper_.run(Operation::split, x, slice, {rows, shape_.in, 1}, type);
    x = slice;
    local_dx = grown(local_dx_, rows * local_in_ * element, memory_);
  }
  const auto use = [&](const void* from, std::size_t first, std::size_t count) {
    if (dx == nullptr) return;
    multiply_({.type = type,
               .rows = count,
               .columns = local_in_,
               .inner = shape_.out,
               .a = from,
               .b = parameters.weight,
               .c = local_dx + first * local_in_ * element});
  };
  const void* whole = dy;
  if (options_.sequence) {
    std::byte* const gathered = grown(gathered_, outputs.bytes(), memory_);
    std::byte* const buffer =
        options_.pieces <= 1 ? nullptr : grown(pieces_, outputs.bytes(), memory_);
    gather_rows(mapper_, outputs, dy, gathered, buffer, use);
    whole = gathered;
  } else {
    use(dy, 0, rows);
  }
  weight_gradient(multiply_, type, shape_.out, local_in_, rows, whole, x, gradients);
  if (!options_.input_is_parallel && dx != nullptr) {
    mapper_.run(Operation::all_gather, local_dx, dx, {rows, shape_.in, 1}, type);
  }
}

}  // namespace tutti::parallel::tensor
