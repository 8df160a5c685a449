// The attention of a framework, on one block of queries and one of keys. The engine decides which
// blocks to attend to when, lets them travel meanwhile, and puts the results together.
//
// Tensors are contiguous, and the sequence is their first dimension: q, out and their gradients are
// queries x batch x heads x dim elements, k, v and theirs keys x batch x kv_heads x dim. lse and
// delta are queries x batch x heads numbers of type wide(type).
#pragma once

#include <tutti/core/types.h>

#include <cstddef>
#include <functional>

namespace tutti::parallel::sequence {

/// The type in which results of blocks are put together: float64 for float64, else float32.
constexpr DataType wide(DataType type) {
  return type == DataType::float64 ? DataType::float64 : DataType::float32;
}

struct Block {
  DataType type = DataType::float32;
  std::size_t batch = 1;
  std::size_t heads = 1, kv_heads = 1;  // query head h uses key head h / (heads / kv_heads)
  std::size_t dim = 1;
  std::size_t queries = 0, keys = 0;
  // Query i sees keys 0 to keys - queries + i: the last query sees all (FlashAttention's mask,
  // aligned to the bottom right). Else each sees all. Never are there fewer keys than queries.
  bool causal = false;
  const void* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
};

/// Writes `out`, the attention's result, and `lse`, the natural logarithm of the sum of the
/// exponentials of each query's scaled scores.
struct ForwardBlock {
  Block block;
  void* out = nullptr;
  void* lse = nullptr;
};

/// Writes the gradients that this block of keys has a part in. `out` and `lse` are those of the
/// queries with the keys of all ranks, `delta` is the sum of out * dout over dim.
struct BackwardBlock {
  Block block;
  const void* out = nullptr;
  const void* lse = nullptr;
  const void* dout = nullptr;
  const void* delta = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
};

/// What they compute is there when they return, or, on a GPU, once whatever reads it next is in its
/// order on the current stream. An element's bits may depend on the block. If one
/// throws, the engine aborts its axes, so that no other rank waits.
struct Kernel {
  std::function<void(const ForwardBlock&)> forward;
  std::function<void(const BackwardBlock&)> backward;
};

/// Plain loops, for tests and examples, for all floats of at least 16 bits; scores are scaled by 1
/// / sqrt(dim). Computes in wide(type), and keeps the scores of one query at a time.
Kernel plain_kernel();

}  // namespace tutti::parallel::sequence
