// Policy: what the user chooses. What is sharded, when it is freed, how it lies in memory, in which
// types, and how far ahead communication is started. The same on all ranks.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "../../core/types.h"
#include "unit.h"

namespace tutti::parallel {

/// What each rank keeps only its part of. Optimizer state in all three, gradients from 2 on.
enum class Stage : unsigned char {
  optimizer = 1,   // ZeRO-1
  gradients = 2,   // ZeRO-2
  parameters = 3,  // ZeRO-3, FSDP
};

/// How a unit is cut into a shard for each rank.
enum class Layout : unsigned char {
  flat,         // the parameters one after the other, cut into equal parts: one call for a unit
  by_parameter  // each along its leading dimension, as FSDP2: whole rows, a call for a parameter
};

/// float32, bfloat16 and float16 mix; float64 is for all or for none.
struct Precision {
  DataType compute = DataType::float32;   // the parameters that forward and backward see
  DataType gradient = DataType::float32;  // what backward adds to
  DataType reduce = DataType::float32;    // what travels, and the gradients' shards
  DataType master = DataType::float32;    // what the optimizer updates, and its state
  /// What a module has besides parameters (running averages, tables), where it has floating-point
  /// numbers; none: as it is. The engine does not see them: it is done by whoever has the module.
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
  /// Stage 3: units that are gathered ahead of the one that is needed, in the order of the steps
  /// before. So many units and one more are unsharded at a time.
  std::size_t prefetch_forward = 1, prefetch_backward = 1;
  /// Stages 2 and 3: units whose gradients are still being reduced when the next one's are made.
  std::size_t reductions_in_flight = 1;
  /// What gradients are divided by; 0: the number of ranks that reduce them (the average).
  unsigned divide_by = 0;
  /// In flat units parameters, and in all of them shards, begin at multiples of so many elements.
  std::size_t alignment = 32;
  /// Master parameters and optimizer state lie in ordinary host memory, not where the parameters
  /// are. Where those are on the host too, all that changes is that they lie in no window.
  bool offload_state = false;
  /// finish_backward() throws on all ranks when a rank has made a gradient that is not finite.
  bool check_finite = false;

  /// Throws Error(invalid_argument) for what cannot be.
  void check() const;
  /// What the ranks have to have in common, as text.
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
