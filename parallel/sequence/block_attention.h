// Attention in which queries stay where they are, while a rank's keys and values (its "keys", for
// short) reach all ranks of an axis: round a ring, block by block, or in an all-gather. A rank has
// rows of all of its heads.
//
// Ring (Liu, Zaharia, Abbeel, 2023): in step i rank r attends to the keys of rank r - i, and passes
// them on meanwhile. In the backward the sums of the gradients of keys follow their keys, one step
// behind, and a last hop brings them home. All-gather (Llama 3, 2024): nothing overlaps, but the
// kernel gets all keys at once, and nothing is left to merge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "parallel/axis.h"
#include "parallel/layer_math.h"
#include "parallel/memory_pool.h"
#include "parallel/sequence/kernel.h"
#include "parallel/sequence/layout.h"

namespace tutti::parallel::sequence {

/// The tensors of one rank.
struct Keys {
  void* k = nullptr;
  void* v = nullptr;
};
struct ConstantKeys {
  ConstantKeys(const void* of_k, const void* of_v) : k(of_k), v(of_v) {}
  ConstantKeys(const Keys& keys) : k(keys.k), v(keys.v) {}
  const void* k;
  const void* v;
};
struct ForwardTensors {
  const void* q;
  ConstantKeys keys;
  void* out;
  void* lse;
};
struct BackwardTensors {
  const void* q;
  ConstantKeys keys;
  const void* out;
  const void* lse;
  const void* dout;
  void* dq;
  Keys gradients;
};

class BlockAttention {
 public:
  /// `axis`: null or of one rank: nothing travels. `job`: the axes that fail if a kernel throws.
  BlockAttention(std::string what, Axis* axis, std::vector<Axis*> job, SequenceLayout layout,
                 Block shape, Kernel kernel, MemoryPool& memory)
      : what_(std::move(what)),
        axis_(axis),
        label_(axis == nullptr ? std::uint16_t{0} : axis->new_label(what_)),
        job_(std::move(job)),
        layout_(layout),
        shape_(shape),
        kernel_(std::move(kernel)),
        memory_(memory) {}

  // Collective; all pointers are of this rank's rows.
  void ring_forward(const ForwardTensors& t) const;
  void ring_backward(const BackwardTensors& t) const;
  void gathered_forward(const ForwardTensors& t) const;
  void gathered_backward(const BackwardTensors& t) const;

  /// The memory that a call takes.
  std::size_t ring_forward_bytes() const;
  std::size_t ring_backward_bytes() const;
  std::size_t gathered_forward_bytes() const;
  std::size_t gathered_backward_bytes() const;

  /// The memory's.
  Device& device() const { return memory_.device(); }
  LayerMath& math() const { return *device().layer_math(); }

  const std::string& what() const { return what_; }
  const SequenceLayout& layout() const { return layout_; }
  DataType type() const { return shape_.type; }
  DataType sum_type() const { return wide(shape_.type); }
  bool narrow() const { return sum_type() != type(); }
  bool alone() const { return layout_.ranks == 1; }
  /// Elements of a row of q, of k, and of lse; bytes of `rows` rows of type `of`.
  std::size_t query_row() const { return shape_.batch * shape_.heads * shape_.dim; }
  std::size_t key_row() const { return shape_.batch * shape_.kv_heads * shape_.dim; }
  std::size_t lse_row() const { return shape_.batch * shape_.heads; }
  std::size_t query_bytes(std::size_t rows, DataType of) const {
    return rows * query_row() * size_of(of);
  }
  std::size_t key_bytes(std::size_t rows, DataType of) const {
    return rows * key_row() * size_of(of);
  }
  std::size_t lse_bytes(std::size_t rows) const { return rows * lse_row() * size_of(sum_type()); }

 private:
  Block block_of(const Part& part, const void* q, ConstantKeys keys) const;
  void compute(const ForwardBlock& block) const;
  void compute(const BackwardBlock& block) const;
  /// The backward of a part; dq, dk and dv are written for the part's rows alone, from their start.
  void compute(const Part& part, ConstantKeys keys, const BackwardTensors& t, const void* delta,
               void* dq, Keys gradients) const;
  template <class Call>
  void guarded(const char* pass, const Call& call) const;
  /// delta of all rows.
  void write_delta(const BackwardTensors& t, void* delta) const;
  /// All-gathers a rank's own keys to `all`, through `staged` if they come in another order.
  void gather(ConstantKeys own, Keys staged, Keys all) const;
  /// Reduce-scatters sums of gradients of all keys, through `staged` likewise.
  void reduce(Keys sums, Keys staged, Keys own) const;
  /// Calls `copy` with the place of each chunk in the order of the ranks and in that of the
  /// sequence, and its size, in bytes.
  template <class Copy>
  void for_each_chunk(DataType of, const Copy& copy) const;

  const std::string what_;
  Axis* const axis_;
  const std::uint16_t label_;
  const std::vector<Axis*> job_;
  const SequenceLayout layout_;
  const Block shape_;
  const Kernel kernel_;
  MemoryPool& memory_;
};

inline std::byte* at(void* base, std::size_t bytes) {
  return static_cast<std::byte*>(base) + bytes;
}
inline const std::byte* at(const void* base, std::size_t bytes) {
  return static_cast<const std::byte*>(base) + bytes;
}

}  // namespace tutti::parallel::sequence
