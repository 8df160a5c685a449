#include <fmt/format.h>

#include "parallel/in_flight.h"
#include "parallel/sequence/block_attention.h"
#include "parallel/sequence/workspace.h"

namespace tutti::parallel::sequence {
namespace {

/// Whether the kernel needs gathered keys in another order than the ranks'.
bool reorders(const SequenceLayout& l) { return l.causal && l.order == SequenceOrder::zigzag; }

std::size_t whole_rows(const BlockAttention& a) {
  return a.layout().rows * static_cast<std::size_t>(a.layout().ranks);
}

Keys take_whole_keys(const BlockAttention& a, Workspace& w, DataType type) {
  const std::size_t bytes = a.key_bytes(whole_rows(a), type);
  std::byte* const k = w.take(bytes);
  return {k, w.take(bytes)};
}

struct GatheredForwardBuffers {
  GatheredForwardBuffers(const BlockAttention& a, Workspace& w)
      : all(take_whole_keys(a, w, a.type())),
        staged(reorders(a.layout()) ? take_whole_keys(a, w, a.type()) : all) {}
  Keys all, staged;  // in the order of the sequence, and of the ranks
};

struct GatheredBackwardBuffers {
  GatheredBackwardBuffers(const BlockAttention& a, Workspace& w)
      : delta(w.take(a.lse_bytes(a.layout().rows))),
        all(take_whole_keys(a, w, a.type())),
        sums(take_whole_keys(a, w, a.sum_type())),
        part(take_whole_keys(a, w, a.type())),
        staged(reorders(a.layout()) ? take_whole_keys(a, w, a.sum_type()) : sums) {
    if (!a.narrow()) return;
    const std::size_t bytes = a.key_bytes(a.layout().rows, a.sum_type());
    own.k = w.take(bytes);
    own.v = w.take(bytes);
  }
  std::byte* delta;
  Keys all, sums, part;
  Keys staged;  // in the order of the ranks: the keys as they come, then the sums as they leave
  Keys own;     // the gradients of the rank's own keys, if they are wider than these
};

}  // namespace

std::size_t BlockAttention::gathered_forward_bytes() const {
  return bytes_of<GatheredForwardBuffers>(*this);
}
std::size_t BlockAttention::gathered_backward_bytes() const {
  return bytes_of<GatheredBackwardBuffers>(*this);
}

template <class Copy>
void BlockAttention::for_each_chunk(DataType of, const Copy& copy) const {
  const std::size_t half = layout_.half(), bytes = key_bytes(half, of);
  for (int r = 0; r < layout_.ranks; ++r) {
    for (const std::size_t row : {std::size_t{0}, half}) {
      const std::size_t in_rank_order = static_cast<std::size_t>(r) * layout_.rows + row;
      copy(key_bytes(in_rank_order, of), key_bytes(layout_.position(r, row), of), bytes);
    }
  }
}

void BlockAttention::gather(ConstantKeys own, Keys staged, Keys all) const {
  const std::string where = fmt::format("{}, the gathering of keys", what_);
  {
    InFlight in_flight(where, label_);
    const std::size_t count = layout_.rows * key_row();
    in_flight.add(*axis_, call_of(Collective::all_gather, own.k, staged.k, count, type()));
    in_flight.add(*axis_, call_of(Collective::all_gather, own.v, staged.v, count, type()));
    in_flight.wait();
  }
  if (!reorders(layout_)) return;
  for_each_chunk(type(), [&](std::size_t from, std::size_t to, std::size_t bytes) {
    device().copy(at(all.k, to), at(staged.k, from), bytes);
    device().copy(at(all.v, to), at(staged.v, from), bytes);
  });
}

void BlockAttention::reduce(Keys sums, Keys staged, Keys own) const {
  if (reorders(layout_)) {
    for_each_chunk(sum_type(), [&](std::size_t to, std::size_t from, std::size_t bytes) {
      device().copy(at(staged.k, to), at(sums.k, from), bytes);
      device().copy(at(staged.v, to), at(sums.v, from), bytes);
    });
  }
  const std::string where = fmt::format("{}, the reduction of keys' gradients", what_);
  InFlight in_flight(where, label_);
  const std::size_t count = layout_.rows * key_row();
  in_flight.add(*axis_, call_of(Collective::reduce_scatter, staged.k, own.k, count, sum_type()));
  in_flight.add(*axis_, call_of(Collective::reduce_scatter, staged.v, own.v, count, sum_type()));
  in_flight.wait();
}

void BlockAttention::gathered_forward(const ForwardTensors& t) const {
  const Allocated<GatheredForwardBuffers> b(*this, memory_);
  gather(t.keys, b->staged, b->all);
  for (const Part& part : layout_.gathered()) {
    compute(ForwardBlock{.block = block_of(part, t.q, b->all),
                         .out = at(t.out, query_bytes(part.queries.first, type())),
                         .lse = at(t.lse, lse_bytes(part.queries.first))});
  }
}

void BlockAttention::gathered_backward(const BackwardTensors& t) const {
  const Allocated<GatheredBackwardBuffers> b(*this, memory_);
  write_delta(t, b->delta);
  gather(t.keys, reorders(layout_) ? b->staged : b->all, b->all);
  const std::size_t bytes = key_bytes(whole_rows(*this), sum_type());
  for (void* sum : {b->sums.k, b->sums.v}) device().zero(sum, bytes);
  for (const Part& part : layout_.gathered()) {
    compute(part, b->all, t, b->delta, at(t.dq, query_bytes(part.queries.first, type())), b->part);
    math().add_part(type(), part.keys.count * key_row(), b->part.k, b->sums.k);
    math().add_part(type(), part.keys.count * key_row(), b->part.v, b->sums.v);
  }
  const Keys own = narrow() ? b->own : t.gradients;
  reduce(b->sums, b->staged, own);
  if (!narrow()) return;
  device().convert(sum_type(), own.k, type(), t.gradients.k, layout_.rows * key_row());
  device().convert(sum_type(), own.v, type(), t.gradients.v, layout_.rows * key_row());
}

}  // namespace tutti::parallel::sequence
