#include <fmt/format.h>

#include <utility>

#include "parallel/agreement.h"
#include "parallel/tensor/linear.h"
#include "parallel/tensor/overlap.h"

namespace tutti::parallel::tensor {
namespace {

std::string described(const LinearShape& s, const ColumnOptions& o) {
  return fmt::format(
      "column parallel '{}' of {} inputs and {} outputs, {}, gather_output {}, sequence {}, "
      "pieces {}",
      s.name, s.in, s.out, name(s.type), o.gather_output, o.sequence, o.pieces);
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(Axis& axis, LinearShape shape, ColumnOptions options,
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
  local_out_ = share_of(axis_, what_, "outputs", shape_.out);
}

void ColumnParallelLinear::forward(const void* x, std::size_t rows, LinearConstants parameters,
                                   void* y, void* gathered) {
  const DataType type = shape_.type;
  const std::size_t element = size_of(type);
  const Rows outputs{rows, local_out_, type};
  axis_.device().check_memory(
      what_, {{"the input", x, rows * shape_.in},
              {"the weight", parameters.weight, weight_count()},
              {"the bias", parameters.bias, local_out_, Device::kMayBeNull},
              {"the output", y, rows * local_out_},
              {"the place for the whole input", gathered, rows * shape_.in, Device::kMayBeNull}});
  std::byte* const out =
      options_.gather_output ? grown(slice_, outputs.bytes(), memory_) : static_cast<std::byte*>(y);
  const auto use = [&](const void* from, std::size_t first, std::size_t count) {
    std::byte* const to = out + first * local_out_ * element;
    multiply_({.type = type,
               .rows = count,
               .columns = local_out_,
               .inner = shape_.in,
               .a = from,
               .b = parameters.weight,
               .transpose_b = true,
               .c = to});
    if (parameters.bias == nullptr) return;
    math_->add_to_rows({type, count, local_out_}, parameters.bias, to);
  };
  if (options_.sequence) {
    share_of(axis_, what_, "rows", rows);
    const Rows inputs{rows, shape_.in, type, options_.pieces};
    std::byte* const buffer = gathered != nullptr && options_.pieces <= 1
                                  ? nullptr
                                  : grown(gathered_, inputs.bytes(), memory_);
    gather_rows(mapper_, inputs, x, gathered, buffer, use);
  } else {
    use(x, 0, rows);
  }
  if (options_.gather_output) {
    mapper_.run(Operation::all_gather, out, y, {rows, shape_.out, 1}, type);
  }
}

void ColumnParallelLinear::backward(const void* dy, const void* x, std::size_t rows,
                                    LinearConstants parameters, void* dx, LinearGradients gradients,
                                    const void* gathered) {
  const DataType type = shape_.type;
  const std::size_t element = size_of(type);
  const Rows outputs{rows, local_out_, type};
  axis_.device().check_memory(
      what_, {{"the output's gradient", dy, rows * local_out_},
              {"the input", x, rows * shape_.in,
               (options_.sequence && gathered != nullptr) || gradients.weight == nullptr},
              {"the weight", parameters.weight, weight_count(), dx == nullptr},
              {"the place for the input's gradient", dx, rows * shape_.in, Device::kMayBeNull},
              {"the place for the weight's gradient", gradients.weight, weight_count(),
               Device::kMayBeNull},
              {"the place for the bias's gradient", gradients.bias, local_out_, Device::kMayBeNull},
              {"the whole input", gathered, rows * shape_.in, Device::kMayBeNull}});
  if (options_.gather_output) {
    std::byte* const slice = grown(slice_, outputs.bytes(), memory_);
    mapper_.run(Operation::split, dy, slice, {rows, shape_.out, 1}, type);
    dy = slice;
  }
  const Rows inputs{rows, shape_.in, type, options_.pieces};
  const bool overlaps = options_.pieces > 1 || gradients.weight != nullptr;
  InFlight gathers(what_, mapper_.label()), reductions(what_, mapper_.label(), overlaps);
  const void* whole = options_.sequence ? gathered : x;
  if (options_.sequence) share_of(axis_, what_, "rows", rows);
  if (whole == nullptr && gradients.weight != nullptr) {
    whole = grown(gathered_, inputs.bytes(), memory_);
    gathers.add(axis_, call_of(Collective::all_gather, x, gathered_.data(),
                               rows / static_cast<std::size_t>(axis_.size()) * shape_.in, type));
  }
  const auto make = [&](void* to, std::size_t first, std::size_t count) {
    multiply_({.type = type,
               .rows = count,
               .columns = shape_.in,
               .inner = local_out_,
               .a = static_cast<const std::byte*>(dy) + first * local_out_ * element,
               .b = parameters.weight,
               .c = to});
  };
  if (dx != nullptr && options_.sequence) {
    reduce_scatter_rows(axis_, inputs, dx, grown(pieces_, inputs.bytes(), memory_), reductions,
                        make);
  } else if (dx != nullptr) {
    reduce_rows(axis_, inputs, dx, reductions, make);
  }
  gathers.wait();
  weight_gradient(multiply_, type, local_out_, shape_.in, rows, dy, whole, gradients);
  bias_gradient(axis_.device(), outputs, rows, dy, gradients);
  reductions.wait();
}

}  // namespace tutti::parallel::tensor
