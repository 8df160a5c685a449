// The conjugate pairs of tensor parallelism: the communication where a tensor enters or leaves a
// part of a model that ranks share. A pair is an operation on the tensor in the forward, and
// another one on its gradient in the backward:
//
//     kCopy             nothing                 all-reduce       all use it, each adds a gradient
//     kReduce           all-reduce              nothing          each has a part of a sum
//     kGather           all-gather              split            each has a slice, all want all
//     kScatter          split                   all-gather       all have all, each wants a slice
//     kSequenceGather   all-gather              reduce-scatter   kCopy, of what lies sliced
//     kSequenceScatter  reduce-scatter          all-gather       kReduce, to slices
//
// A slice may lie along any dimension; the slices of all ranks are equally large. The first four
// belong to Megatron-LM (Shoeybi et al., 2019), the last two to its sequence parallelism
// (Korthikanti et al., 2022), which keeps the activations between the shared parts sliced along the
// sequence.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "../axis.h"
#include "../memory_pool.h"

namespace tutti::parallel::tensor {

enum class Operation : unsigned char { none, all_reduce, all_gather, split, reduce_scatter };

struct Pair {
  Operation forward, backward;
};
inline constexpr Pair kCopy{Operation::none, Operation::all_reduce};
inline constexpr Pair kReduce{Operation::all_reduce, Operation::none};
inline constexpr Pair kGather{Operation::all_gather, Operation::split};
inline constexpr Pair kScatter{Operation::split, Operation::all_gather};
inline constexpr Pair kSequenceGather{Operation::all_gather, Operation::reduce_scatter};
inline constexpr Pair kSequenceScatter{Operation::reduce_scatter, Operation::all_gather};

/// A whole tensor, contiguous, seen from the dimension of the slices: `outer` times `length` times
/// `inner` elements. Along the first dimension outer is 1.
struct Extent {
  std::size_t outer = 1, length = 0, inner = 1;
  std::size_t count() const { return outer * length * inner; }
};

/// Carries out operations on an axis, which outlives it, on memory of its device. If slices do not
/// lie one after the other (outer > 1), it rearranges them in memory of its own, which it keeps.
class Mapper {
 public:
  /// `what` appears in errors and in the trace: "linear 'mlp.up'". Made in the same order on all
  /// ranks of the axis, as its calls have a label (Axis::new_label()).
  explicit Mapper(Axis& axis, std::string what = "tensor parallel");

  /// in: all of it (none, all_reduce, split, reduce_scatter) or this rank's slice (all_gather).
  /// out: all of it (none, all_reduce, all_gather) or the slice. The two may be the same memory for
  /// none and all_reduce; then the data stay in place. Collective, except for none and split.
  /// Throws Error(invalid_argument) if the number of ranks does not divide `whole.length`.
  void run(Operation operation, const void* in, void* out, const Extent& whole, DataType type);
  void forward(Pair pair, const void* in, void* out, const Extent& whole, DataType type) {
    run(pair.forward, in, out, whole, type);
  }
  void backward(Pair pair, const void* in, void* out, const Extent& whole, DataType type) {
    run(pair.backward, in, out, whole, type);
  }

  Axis& axis() const { return axis_; }
  const std::string& what() const { return what_; }
  std::uint16_t label() const { return label_; }
  MemoryUse memory() const { return memory_.total(); }

 private:
  void gather(const void* in, void* out, const Extent& whole, DataType type);
  void reduce_scatter(const void* in, void* out, const Extent& whole, DataType type);
  std::byte* scratch(std::size_t bytes);
  void run(Collective collective, const void* in, void* out, std::size_t count, DataType type);

  Axis& axis_;
  const std::string what_;
  const std::uint16_t label_;
  MemoryPool memory_;
  Buffer scratch_;
};

/// `length` divided by the ranks of the axis. Throws Error(invalid_argument), which names `what`,
/// the dimension and both sizes, if that leaves a remainder.
std::size_t share_of(const Axis& axis, std::string_view what, std::string_view dimension,
                     std::size_t length);

}  // namespace tutti::parallel::tensor
