// What a user of the data-parallel engine chooses, and says of the model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../../core/types.h"

namespace tutti::parallel {

/// What the engine knows of a parameter, and of its gradient, which has the same form.
struct Parameter {
  std::string name;
  std::vector<std::size_t> shape;  // none: one number
  DataType type = DataType::float32;

  std::size_t count() const;  // elements
};

/// What becomes of a gradient that was not ready on some rank when finish() was called.
enum class Unused : std::uint8_t {
  error,      // all ranks throw Error(mismatch), which says whose are missing where; the axis is as
              // good as before, the gradients are not. Costs nothing where none is missing
  zero_fill,  // the rank adds zeros to the average
};

/// PowerSGD (Vogels, Karimireddy, Jaggi, 2019): a gradient of m x n, of float32, is averaged as a
/// product of m x rank and rank x n. What that leaves out is added to the next step's gradient.
/// Shapes of more dimensions count as the first by all others; gradients that would not become
/// smaller are averaged as they are.
struct PowerSgd {
  std::size_t rank = 1;
  std::uint64_t first_step = 0;  // the steps before are averaged as they are
};

class Reduction;
class MemoryPool;

/// A way of the user's own to average buckets: reduction.h says what it has to do.
struct OwnReduction {
  std::string name;  // by which ranks compare it
  /// Makes it; the parameters outlive it, and its memory may come from the second.
  std::function<std::unique_ptr<Reduction>(std::span<const Parameter>, MemoryPool&)> make;
};

/// The same on all ranks.
struct DataParallelPolicy {
  std::size_t bucket_bytes = 25u << 20;
  std::size_t first_bucket_bytes = 1u << 20;  // of the bucket that is ready first
  /// After the first step the buckets are laid out anew, in the order in which rank 0's gradients
  /// became ready. Before, and without this: from the last parameter to the first.
  bool learn_order = true;
  /// Buckets are started as soon as they are ready, and another thread works on them while backward
  /// goes on. Otherwise, and where there is one bucket only, finish() averages them on the caller's
  /// thread, which is sooner done.
  bool overlap = true;
  Unused unused = Unused::error;
  /// Gradients are averaged in this floating-point type, if it is another one than theirs: a
  /// narrower one sends less, a wider one rounds less. Takes memory for all gradients in it.
  std::optional<DataType> reduce_type{};
  std::optional<PowerSgd> power_sgd{};
  std::optional<OwnReduction> reduction{};  // of these three one at most
  /// Gradients that are not finite make finish() throw, on all ranks, and say whose they are. Reads
  /// all gradients twice more.
  bool check_finite = false;
  /// Ranks may run out of data at different times, and join() then. One small all-gather a step.
  bool uneven_inputs = false;
};

}  // namespace tutti::parallel
