// The state of the engine of sharded data parallelism as parts of tensors: parameters, the
// optimizer's states and its steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "../optimizer/optimizer.h"
#include "../sharded/sharded.h"
#include "part.h"

namespace tutti::parallel {

/// A parameter as a whole. This rank's engine has a box of it (tensor parallelism), or all.
struct ParameterPlace {
  std::string name;                             // the same in every layout
  std::vector<std::size_t> shape;               // of the whole
  std::vector<std::size_t> offset{}, extent{};  // both empty: all of it
  /// Another rank saves the same elements: of tensor-parallel ranks with copies of a parameter, all
  /// but the first say so. Replicas of shards (ShardedAxes::replicate) need not.
  bool is_copy = false;

  /// Whether the box has the first element of the whole.
  bool has_first() const;
};
/// The parts of a parameter and of its optimizer's state: "NAME", "NAME.state0", ...: `count`
/// elements of the place from `begin` on, of this type.
std::vector<TensorPart> state_parts(const ParameterPlace& place, DataType type, std::size_t begin,
                                    std::size_t count, void* value, std::span<void* const> states);
/// The part "NAME.steps": one number for the whole parameter, which the rank with its first element
/// saves. (No number if ranks divide a parameter without elements: nobody has the first part.)
TensorPart steps_part(const ParameterPlace& place, std::uint64_t* steps);

using PlaceOf = std::function<ParameterPlace(ParameterId)>;

/// Engine, and what `places` says of it, outlive the object; so does the optimizer.
class EngineState {
 public:
  EngineState(ShardedDataParallel& engine, const Optimizer& optimizer, const PlaceOf& places);

  /// What this rank saves: "NAME", "NAME.state0", "NAME.state1", and, on one rank, "NAME.steps".
  /// Ranks that have copies of what others save (all replicas of shards but the first; is_copy)
  /// save none.
  std::vector<TensorPart> saved();
  /// What it loads: the same parts, and the steps on every rank.
  std::vector<TensorPart> wanted() const { return wanted_; }
  /// After wanted() was filled in: steps and parameters go to the engine. Collective.
  void loaded();

 private:
  void each(const std::function<void(ParameterId, std::uint64_t& steps)>& visit);

  ShardedDataParallel& engine_;
  std::vector<TensorPart> saved_, wanted_;
  std::vector<std::vector<std::uint64_t>> steps_;  // by unit and parameter
};

}  // namespace tutti::parallel
