// Sequence parallelism (context parallelism): the ranks of one or two axes divide a sequence that
// is too long for one of them, also in the attention, where each position needs all others.
//
//     heads axis   Ulysses: all-to-alls give each rank all rows of some heads, and back
//     keys axis    ring attention: keys and values go round, each block travels while the rank
//                  attends to another one; or all-gather: each rank gets all of them at once
//
// With both, the two are nested: the ranks of the heads axis together have what one rank of the
// keys axis has. A framework supplies the attention of a block (kernel.h). All other layers work on
// the rank's own positions and need nothing.
//
//     sequence::ContextParallelAttention layer({.heads = &mesh.axis("heads"),
//                                               .keys = &mesh.axis("ring")},
//                                              {.name = "block0", .sequence = 65536, .heads = 32,
//                                               .kv_heads = 8, .dim = 128}, kernel,
//                                              {.order = sequence::SequenceOrder::zigzag});
//     x[i] = input[layer.position(i)], for i < layer.rows()
//     layer.forward(q, k, v, out, saved);
//     layer.backward(dout, saved, dq, dk, dv);
//
// One engine serves all layers of equal shape, and any number of micro-batches at a time. Results
// of blocks are put together in float64 for float64, else in float32, in an order that depends on
// the rank alone: equal inputs give equal bits in every run in which the same plans run.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "../axis.h"
#include "../memory_pool.h"
#include "kernel.h"
#include "layout.h"

namespace tutti::parallel::sequence {

/// Either may be null. They cross, as two dimensions of a mesh do, and outlive the engine.
struct AttentionAxes {
  Axis* heads = nullptr;
  Axis* keys = nullptr;
};

/// The shape of the whole attention, of all ranks together.
struct AttentionShape {
  std::string name;
  std::size_t sequence = 0;  // positions
  std::size_t batch = 1;
  std::size_t heads = 1;
  std::size_t kv_heads = 0;  // 0: as many as heads
  std::size_t dim = 0;       // of a head
  DataType type = DataType::float32;
  bool causal = true;  // a position sees itself and those before it; else all
};

enum class KeysTravel : unsigned char { ring, all_gather };

struct AttentionOptions {
  KeysTravel keys = KeysTravel::ring;
  SequenceOrder order = SequenceOrder::contiguous;  // of positions along the keys axis (layout.h)
};

class ContextParallelAttention {
  class Impl;

 public:
  /// What the backward needs, of one forward; of none after one that has thrown. Movable; the
  /// engine outlives it.
  class Saved {
   public:
    Saved() = default;

   private:
    friend class ContextParallelAttention;
    const Impl* of_ = nullptr;  // whose forward it is, all of it; null: of none
    Buffer memory_;
    const void* q_ = nullptr;
    const void* k_ = nullptr;
    const void* v_ = nullptr;
    const void* out_ = nullptr;
    const void* lse_ = nullptr;
  };

  /// Collective over both axes. If ranks differ, all throw Error(mismatch). All throw
  /// Error(invalid_argument), with the layer and the sizes, if the ranks do not divide the sequence
  /// (in zigzag order, two chunks for each rank), if the axes do not cross, if kv_heads does not
  /// divide heads, if the heads axis has more ranks than there are heads, or if the ranks of a host
  /// together have not the memory that calls need.
  ContextParallelAttention(AttentionAxes axes, AttentionShape shape, Kernel kernel,
                           AttentionOptions options = {});
  ~ContextParallelAttention();
  ContextParallelAttention(const ContextParallelAttention&) = delete;
  ContextParallelAttention& operator=(const ContextParallelAttention&) = delete;

  /// The positions that this rank has, and the place of row `row` of them in the sequence.
  std::size_t rows() const;
  std::size_t position(std::size_t row) const;

  // Collective. Memory of the axes' device, in the layout of kernel.h; q, out and their gradients
  // have rows() x batch x heads x dim elements, k, v and theirs rows() x batch x kv_heads x dim.
  // One thread at a time. If a rank throws, because its kernel does or its arguments are refused,
  // all ranks of both axes throw Error(aborted), which says so.
  /// Without a heads axis (of more than one rank), `saved` refers to q, k, v and out: they have to
  /// stay there until the backward. With one, it has its own.
  void forward(const void* q, const void* k, const void* v, void* out, Saved& saved);
  /// Writes dq, dk and dv. Throws Error(invalid_usage) if `saved` is of no forward of this engine.
  void backward(const void* dout, const Saved& saved, void* dq, void* dk, void* dv);

  /// Of calls, and of all Saved that there are.
  MemoryUse memory() const;
  /// The bytes that this rank's memory() reaches at most in a forward and in a backward, without
  /// those of Saved; and the bytes of each Saved.
  std::size_t call_bytes() const;
  std::size_t saved_bytes() const;

 private:
  const std::unique_ptr<Impl> impl_;
};

}  // namespace tutti::parallel::sequence
