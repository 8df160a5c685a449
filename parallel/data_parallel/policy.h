// The choices of a user of the data-parallel engine, and the description of the model.
#pragma once

#include <tutti/core/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../eight_bits.h"

namespace tutti::parallel {

/// A parameter as the engine knows it; its gradient has the same form.
struct Parameter {
  std::string name;
  std::vector<std::size_t> shape;  // none: one number
  DataType type = DataType::float32;

  std::size_t count() const;  // elements
};

/// The treatment of a gradient that is not ready on some rank at finish().
enum class Unused : std::uint8_t {
  error,  // all ranks throw Error(mismatch), which names the missing gradients and ranks; the axis
          // is as good as before, the gradients are not. Costs nothing where none is missing
  zero_fill,  // the rank adds zeros to the average
};

/// PowerSGD (Vogels, Karimireddy, Jaggi, 2019): it averages a float32 gradient of m x n as a
/// product of m x rank and rank x n, and adds the left-out part to the next step's gradient. Shapes
/// of more dimensions count as the first by all others. Gradients that would not become smaller are
/// averaged in full.
struct PowerSgd {
  std::size_t rank = 1;
  std::uint64_t first_step = 0;  // earlier steps are averaged in full
};

class Reduction;
class MemoryPool;

/// The user's own way to average buckets; see reduction.h.
struct OwnReduction {
  std::string name;  // ranks compare this name
  /// Makes the reduction. The parameters outlive it, and its memory may come from the second
  /// argument.
  std::function<std::unique_ptr<Reduction>(std::span<const Parameter>, MemoryPool&)> make;
};

/// How the engine communicates. The same on all ranks.
struct DataParallelPolicy {
  std::size_t bucket_bytes = 25u << 20;
  std::size_t first_bucket_bytes = 1u << 20;  // of the first bucket that becomes ready
  /// After the first step the buckets are laid out anew, in the order in which rank 0's gradients
  /// became ready. Before, and without this: from the last parameter to the first.
  bool learn_order = true;
  /// The engine starts buckets as soon as they are ready, and another thread works on them while
  /// backward goes on. Otherwise, and if there is only one bucket, finish() averages them on the
  /// caller's thread, which takes less time.
  bool overlap = true;
  Unused unused = Unused::error;
  /// Gradients are averaged in this floating-point type, if it is another one than theirs: a
  /// narrower one sends less, a wider one rounds less. Takes memory for all gradients in it.
  std::optional<DataType> reduce_type{};
  std::optional<PowerSgd> power_sgd{};
  /// Gradients of float16, bfloat16 and float32 are averaged by compressed all-reduces. Other
  /// gradients are averaged as they are.
  std::optional<EightBits> eight_bits{};
  std::optional<OwnReduction> reduction{};  // at most one of these four
  /// finish() throws on all ranks if a gradient is not finite, and names it and its rank. Reads all
  /// gradients twice more.
  bool check_finite = false;
  /// Ranks may run out of data at different times, and join() then. One small all-gather a step.
  bool uneven_inputs = false;
};

}  // namespace tutti::parallel
