// Policy: the user's choices. What ranks shard, when they free it, its layout in memory, its types,
// and how far ahead communication starts. The same on all ranks.
#pragma once

#include <tutti/core/types.h>

#include <cstddef>
#include <optional>
#include <string>

#include "../eight_bits.h"
#include "unit.h"

namespace tutti::parallel {

/// What ranks shard: each keeps only its part. Optimizer state in all three stages, gradients from
/// 2 on.
enum class Stage : unsigned char {
  optimizer = 1,   // ZeRO-1
  gradients = 2,   // ZeRO-2
  parameters = 3,  // ZeRO-3, FSDP
};

/// How the engine cuts a unit into a shard for each rank.
enum class Layout : unsigned char {
  flat,         // the parameters one after the other, cut into equal parts: one call for a unit
  by_parameter  // each along its leading dimension, as FSDP2: whole rows, a call for a parameter
};

/// float32, bfloat16 and float16 mix; float64 is for all or for none.
struct Precision {
  DataType compute = DataType::float32;   // the parameters that forward and backward see
  DataType gradient = DataType::float32;  // the type to which backward adds
  DataType reduce = DataType::float32;    // the type that travels, and of the gradients' shards
  DataType master = DataType::float32;    // the type that the optimizer updates, and of its state
  /// The type of a module's floating-point buffers (running averages, tables); none: unchanged. The
  /// engine does not see buffers: the owner of the module converts them.
  std::optional<DataType> buffer = std::nullopt;

  static Precision of(DataType all) { return {all, all, all, all, {}}; }
  /// bfloat16 or float16, and a float32 master.
  static Precision mixed(DataType narrow = DataType::bfloat16) {
    return {narrow, narrow, narrow, DataType::float32, {}};
  }
};

struct Policy {
  Stage stage = Stage::parameters;
  Reshard reshard_after_forward = Reshard::yes;  // stage 3
  Layout layout = Layout::flat;
  Precision precision = {};
  /// Parameters travel in 8 bits for an element (docs/low-precision.md); all ranks use what
  /// arrives. Shards and masters keep their digits, so before stage 3 this needs a master of
  /// another type.
  bool gather_eight_bits = false;
  /// Gradients travel in 8 bits for an element: in the reduce_scatter among the ranks that share a
  /// unit, and in the all_reduce among replicas. With error feedback a rank keeps what it has left
  /// out of its gradients of all units, in all stages, in float32.
  std::optional<EightBits> reduce_eight_bits = std::nullopt;
  /// Stage 3: the number of units that the engine gathers ahead of the unit in use, in the order of
  /// earlier steps. That many units and one more are unsharded at a time.
  std::size_t prefetch_forward = 1, prefetch_backward = 1;
  /// Stages 2 and 3: the number of units that may still reduce when the next unit makes its
  /// gradients.
  std::size_t reductions_in_flight = 1;
  /// The divisor of gradients; 0: the number of ranks that reduce them (the average).
  unsigned divide_by = 0;
  /// Shards, and in flat units parameters too, begin at multiples of this many elements.
  std::size_t alignment = 32;
  /// Master parameters and optimizer state lie in ordinary host memory, not with the parameters. If
  /// parameters are on the host too, the only change is that they lie in no window.
  bool offload_state = false;
  /// finish_backward() throws on all ranks when a rank has made a gradient that is not finite.
  bool check_finite = false;

  /// Throws Error(invalid_argument) for an impossible policy.
  void check() const;
  /// The part that must be equal on all ranks, as text.
  std::string describe() const;

  static Policy zero1(Precision precision = {}) { return of(Stage::optimizer, precision); }
  static Policy zero2(Precision precision = {}) { return of(Stage::gradients, precision); }
  static Policy zero3(Precision precision = {}) { return of(Stage::parameters, precision); }
  /// FSDP2: stage 3, sharded along the leading dimension.
  static Policy fsdp(Precision precision = {});

 private:
  static Policy of(Stage stage, Precision precision);
};

}  // namespace tutti::parallel
