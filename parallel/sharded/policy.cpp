#include "parallel/sharded/policy.h"

#include <fmt/format.h>

#include "core/compressed.h"
#include "core/error.h"

namespace tutti::parallel {

std::string_view name(Reshard reshard) {
  switch (reshard) {
    case Reshard::yes:
      return "yes";
    case Reshard::no:
      return "no";
    case Reshard::to_group:
      return "to_group";
  }
  return "?";
}

void Policy::check() const {
  const auto refuse = [](const std::string& why) {
    throw Error(ErrorCode::invalid_argument, "Policy: " + why);
  };
  const auto& p = precision;
  const bool wide = p.master == DataType::float64;
  if (!wide && p.master != DataType::float32) {
    refuse(fmt::format("the master type is float32 or float64, not {}", name(p.master)));
  }
  for (const DataType type : {p.compute, p.gradient, p.reduce}) {
    const bool narrow = type == DataType::bfloat16 || type == DataType::float16;
    if (wide ? type != DataType::float64 : !narrow && type != DataType::float32) {
      refuse(fmt::format("{} does not go with a master of type {}", name(type), name(p.master)));
    }
  }
  if (p.buffer && !is_float(*p.buffer)) {
    refuse(fmt::format("buffers of type {}: it has to be a floating-point type", name(*p.buffer)));
  }
  if (gather_eight_bits && !is_compressible(p.compute)) {
    refuse(fmt::format("gather_eight_bits: parameters of type {} have no compressed form",
                       name(p.compute)));
  }
  if (gather_eight_bits && stage != Stage::parameters && p.master == p.compute) {
    refuse("gather_eight_bits before stage 3 needs a master of another type than the parameters'");
  }
  if (reduce_eight_bits && !is_compressible(p.reduce)) {
    refuse(fmt::format("reduce_eight_bits: gradients of type {} have no compressed form",
                       name(p.reduce)));
  }
  constexpr std::size_t kMostAlignment = 1 << 20;
  if (alignment == 0) refuse("alignment is 0; 1 is none");
  if (alignment > kMostAlignment) {
    refuse(fmt::format("alignment is {}, more than {}", alignment, kMostAlignment));
  }
  if (stage != Stage::parameters && reshard_after_forward != Reshard::yes) {
    refuse("reshard_after_forward is for stage 3; before it parameters are not sharded");
  }
}

std::string Policy::describe() const {
  const auto& p = precision;
  return fmt::format(
      "stage {} ({}), reshard {}, layout {}, compute {}, gradient {}, reduce {}, master {}, buffer "
      "{}, "
      "gather_eight_bits {}, reduce_eight_bits {}, prefetch {} and {}, {} in flight, divide by {}, "
      "alignment {}, "
      "check_finite {}",
      static_cast<int>(stage),
      stage == Stage::optimizer   ? "optimizer"
      : stage == Stage::gradients ? "gradients"
                                  : "parameters",
      name(reshard_after_forward), layout == Layout::flat ? "flat" : "by_parameter",
      name(p.compute), name(p.gradient), name(p.reduce), name(p.master),
      p.buffer ? name(*p.buffer) : "any", gather_eight_bits,
      !reduce_eight_bits                  ? "no"
      : reduce_eight_bits->error_feedback ? "with error feedback"
                                          : "without error feedback",
      prefetch_forward, prefetch_backward, reductions_in_flight, divide_by, alignment,
      check_finite);
}

Policy Policy::fsdp(Precision precision) {
  Policy policy = of(Stage::parameters, precision);
  policy.layout = Layout::by_parameter;
  return policy;
}

Policy Policy::of(Stage stage, Precision precision) {
  Policy policy;
  policy.stage = stage;
  policy.precision = precision;
  return policy;
}

}  // namespace tutti::parallel
