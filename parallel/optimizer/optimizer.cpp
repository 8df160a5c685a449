#include "parallel/optimizer/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace tutti::parallel {
namespace {

constexpr std::size_t kPiece = 1024;  // elements that stay in the first-level cache

void* at(void* data, DataType type, std::size_t i) {
  return data == nullptr ? nullptr : static_cast<std::byte*>(data) + i * size_of(type);
}
const void* at(const void* data, DataType type, std::size_t i) {
  return static_cast<const std::byte*>(data) + i * size_of(type);
}

/// One number that is none ends in all parameters.
void check(std::string_view optimizer, std::string_view option, double value, double below) {
  if (value >= 0 && value < below) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: the {} is {}; it is 0 or more{}", optimizer, option, value,
                          std::isinf(below) ? "" : fmt::format(", and less than {}", below)));
}
constexpr double kAny = std::numeric_limits<double>::infinity();

}  // namespace

void Optimizer::update(const Slice& slice) const {
  const DataType type = slice.type;
  float widened[kPiece];
  for (std::size_t i = 0; i < slice.count; i += kPiece) {
    kernels::Block block;
    block.count = std::min(kPiece, slice.count - i);
    block.master = at(slice.master, type, i);
    block.gradient = at(slice.gradient, slice.gradient_type, i);
    for (int s = 0; s < 2; ++s) block.state[s] = at(slice.state[s], type, i);
    if (slice.gradient_type != type) {
      kernels::convert(slice.gradient_type, block.gradient, type, widened, block.count);
      block.gradient = widened;
    }
    update_block(slice, block);
    if (slice.compute != nullptr) {
      kernels::convert(type, block.master, slice.compute_type,
                       at(slice.compute, slice.compute_type, i), block.count);
    }
  }
}

void Optimizer::update_on_gpu(const Slice&, void*) const {
  throw Error(ErrorCode::invalid_usage,
              fmt::format("{} has no kernels for GPUs: a subclass of Optimizer brings its own "
                          "(update_on_gpu)",
                          name()));
}

void AdamW::check_options() const {
  check("AdamW", "learning rate", options.learning_rate, kAny);
  check("AdamW", "beta1", options.beta1, 1);
  check("AdamW", "beta2", options.beta2, 1);
  check("AdamW", "epsilon", options.epsilon, kAny);
  check("AdamW", "weight decay", options.weight_decay, kAny);
}

void Sgd::check_options() const {
  check("SGD", "learning rate", options.learning_rate, kAny);
  check("SGD", "momentum", options.momentum, kAny);
  check("SGD", "weight decay", options.weight_decay, kAny);
}

kernels::AdamWConstants AdamW::constants(const Slice& slice) const {
  const auto step = static_cast<double>(slice.step);
  return {
      .scale = slice.gradient_scale,
      .keep = 1 - options.learning_rate * options.weight_decay * slice.decay_scale,
      .beta1 = options.beta1,
      .beta2 = options.beta2,
      .rate = options.learning_rate / (1 - std::pow(options.beta1, step)),
      .root = 1 / std::sqrt(1 - std::pow(options.beta2, step)),
      .epsilon = options.epsilon,
  };
}

void AdamW::update_block(const Slice& slice, const kernels::Block& block) const {
  kernels::adamw(slice.type, block, constants(slice));
}

kernels::SgdConstants Sgd::constants(const Slice& slice) const {
  return {.scale = slice.gradient_scale,
          .decay = options.weight_decay * slice.decay_scale,
          .momentum = options.momentum,
          .rate = options.learning_rate,
          .nesterov = options.nesterov};
}

void Sgd::update_block(const Slice& slice, const kernels::Block& block) const {
  kernels::sgd(slice.type, block, constants(slice));
}

}  // namespace tutti::parallel
