// Ways to divide the attention over a sequence, the tensors for them, and what a rank computes.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "core/convert.h"
#include "parallel/sequence/attention.h"

namespace tutti::parallel::sequence::attention_ways {

struct Way {
  int heads_ranks = 1, keys_ranks = 1;
  KeysTravel keys = KeysTravel::ring;
  SequenceOrder order = SequenceOrder::contiguous;
  bool causal = true;
  std::size_t heads = 4, kv_heads = 4;
  DataType type = DataType::float64;

  std::size_t ranks() const { return static_cast<std::size_t>(heads_ranks * keys_ranks); }
  std::string text() const {
    return fmt::format("heads {} x keys {}, {}, {}, {}, {}/{} heads, {}", heads_ranks, keys_ranks,
                       keys == KeysTravel::ring ? "ring" : "all_gather",
                       order == SequenceOrder::zigzag ? "zigzag" : "contiguous", causal, heads,
                       kv_heads, name(type));
  }
};

inline constexpr std::size_t kSequence = 48, kBatch = 2, kDim = 4;

/// Tensors of type `type`, of numbers that the type has.
struct Tensor {
  Tensor(DataType t, std::size_t count, double seed = 0) : type(t), bytes(count * size_of(t)) {
    std::vector<double> v(count);
    for (std::size_t i = 0; i < count && seed != 0; ++i) {
      v[i] = std::sin(seed * 12.9898 + static_cast<double>(i) * 0.7371) *
             std::cos(static_cast<double>(i * i % 97) + seed);
    }
    convert(v.data(), DataType::float64, bytes.data(), type, count);
  }
  std::byte* data() { return bytes.data(); }
  std::size_t count() const { return bytes.size() / size_of(type); }
  std::vector<double> values() const {
    std::vector<double> v(count());
    convert(bytes.data(), type, v.data(), DataType::float64, v.size());
    return v;
  }
  bool operator==(const Tensor&) const = default;

  DataType type;
  std::vector<std::byte> bytes;
};

/// q, k, v, dout; out, dq, dk, dv. Of a rank, or of one rank that has all.
struct Tensors {
  Tensors(const Way& w, std::size_t rows, bool filled)
      : q(w.type, rows * kBatch * w.heads * kDim, filled ? 1 : 0),
        k(w.type, rows * kBatch * w.kv_heads * kDim, filled ? 2 : 0),
        v(w.type, k.count(), filled ? 3 : 0),
        dout(w.type, q.count(), filled ? 4 : 0),
        out(w.type, q.count()),
        dq(w.type, q.count()),
        dk(w.type, k.count()),
        dv(w.type, k.count()) {}
  Tensor q, k, v, dout, out, dq, dk, dv;
};

/// A rank's rows of a tensor of all.
inline void take_rows(const ContextParallelAttention& layer, const Tensor& all, Tensor& mine) {
  const std::size_t row = all.bytes.size() / kSequence;
  for (std::size_t i = 0; i < layer.rows(); ++i) {
    std::memcpy(mine.data() + i * row, all.bytes.data() + layer.position(i) * row, row);
  }
}

inline AttentionShape shape_of(const Way& w) {
  return {.name = "a",
          .sequence = kSequence,
          .batch = kBatch,
          .heads = w.heads,
          .kv_heads = w.kv_heads,
          .dim = kDim,
          .type = w.type,
          .causal = w.causal};
}

/// What a rank computes. `look` sees the engine after the forward, and after the backward.
template <class Look>
Tensors attend(AttentionAxes axes, const Way& way, const Look& look) {
  ContextParallelAttention layer(axes, shape_of(way), plain_kernel(),
                                 {.keys = way.keys, .order = way.order});
  const Tensors all(way, kSequence, true);
  Tensors t(way, layer.rows(), false);
  take_rows(layer, all.q, t.q);
  take_rows(layer, all.k, t.k);
  take_rows(layer, all.v, t.v);
  take_rows(layer, all.dout, t.dout);
  for (Axis* axis : {axes.heads, axes.keys}) axis->reset_traffic();
  ContextParallelAttention::Saved saved;
  layer.forward(t.q.data(), t.k.data(), t.v.data(), t.out.data(), saved);
  look(layer, false);
  for (Axis* axis : {axes.heads, axes.keys}) axis->reset_traffic();
  layer.backward(t.dout.data(), saved, t.dq.data(), t.dk.data(), t.dv.data());
  look(layer, true);
  return t;
}

}  // namespace tutti::parallel::sequence::attention_ways
