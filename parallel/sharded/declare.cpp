#include "parallel/sharded/declare.h"

#include <fmt/format.h>

#include <string>

#include "core/error.h"
#include "parallel/agreement.h"

namespace tutti::parallel {
namespace {

/// Throws Error(invalid_argument) for what cannot be on the axes' device.
void check_device(const Policy& policy, const ShardedAxes& axes) {
  const Device& device = axes.shard->device();
  const auto refuse = [&](std::string_view what) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("sharded data parallel on {}: {}", device.name(), what));
  };
  for (const Axis* axis : {axes.replicate, axes.group}) {
    if (axis != nullptr && &axis->device() != &device) {
      refuse(fmt::format("another of its axes is on {}", axis->device().name()));
    }
  }
  if (!device.is_gpu()) return;
  if (policy.check_finite) {
    refuse(
        "check_finite would make the host wait for the GPU; the norm of clip_gradients() says "
        "whether gradients are finite");
  }
  if (policy.gather_eight_bits) refuse("gather_eight_bits is for host memory");
  if (policy.reduce_eight_bits) refuse("reduce_eight_bits is for host memory");
  if (policy.offload_state) refuse("offload_state is for host memory");
  if (device.computes()) return;
  const Precision& types = policy.precision;
  if (types.compute != types.master || types.gradient != types.master ||
      types.reduce != types.master) {
    refuse("it has no kernels for conversions, so all types of the policy have to be equal");
  }
  if (policy.divide_by > 1) {
    refuse("it has no kernels for sums, so divide_by has to be 0 (the average) or 1");
  }
}

/// Throws Error(invalid_argument) for what cannot be.
void check(const std::vector<Unit>& units, const Policy& policy, const ShardedAxes& axes) {
  const auto refuse = [](const std::string& why) { throw Error(ErrorCode::invalid_argument, why); };
  policy.check();
  check_device(policy, axes);
  double elements = 0;
  for (const Unit& unit : units) {
    const Reshard reshard = unit.reshard.value_or(policy.reshard_after_forward);
    if (reshard == Reshard::to_group && axes.group == nullptr) {
      refuse(
          fmt::format("unit '{}' is resharded to a group, and there is no axis for it "
                      "(ShardedAxes::group)",
                      unit.name));
    }
    for (const UnitParameter& p : unit.parameters) {
      elements += static_cast<double>(p.count);
      if (elements > kMostElements) {
        refuse(fmt::format("parameter '{}' of unit '{}' has {} elements: more than there can be",
                           p.name, unit.name, p.count));
      }
      if (p.rows == 0 ? p.count != 0 : p.count % p.rows != 0) {
        refuse(
            fmt::format("parameter '{}' of unit '{}' has {} elements in {} rows, which do not "
                        "divide them",
                        p.name, unit.name, p.count, p.rows));
      }
    }
  }
  if (axes.group != nullptr && axes.shard->size() % axes.group->size() != 0) {
    refuse(fmt::format("a group of {} ranks does not divide the {} that share the parameters",
                       axes.group->size(), axes.shard->size()));
  }
}

std::vector<std::string> describe(const std::vector<Unit>& units, const Policy& policy) {
  std::vector<std::string> texts = {"the policy " + policy.describe()};
  for (const Unit& unit : units) {
    texts.push_back(fmt::format("unit '{}', reshard {}", unit.name,
                                unit.reshard ? name(*unit.reshard) : "as the policy has it"));
    for (const UnitParameter& p : unit.parameters) {
      texts.push_back(
          fmt::format("parameter '{}' of unit '{}', {} elements in {} rows, weight "
                      "decay {}{}",
                      p.name, unit.name, p.count, p.rows, p.weight_decay,
                      p.in_norm ? "" : ", not in the norm"));
    }
  }
  return texts;
}

}  // namespace

void agree_on_declarations(Agreement ranks, const std::vector<Unit>& units, const Policy& policy,
                           const ShardedAxes& axes) {
  // A rank with a declaration that cannot be does not leave the others waiting.
  std::vector<std::string> texts = describe(units, policy);
  std::string problem;
  try {
    check(units, policy, axes);
  } catch (const Error& e) {
    problem = e.what();
  }
  texts.push_back(problem.empty() ? "the end of the declaration" : problem);
  agree(ranks, "the declared model", texts);
  if (!problem.empty()) throw Error(ErrorCode::invalid_argument, problem);
}

}  // namespace tutti::parallel
