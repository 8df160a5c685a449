#include <fmt/format.h>

#include <algorithm>

#include "parallel/in_flight.h"
#include "parallel/sequence/block_attention.h"
#include "parallel/sequence/workspace.h"

namespace tutti::parallel::sequence {
namespace {

/// A rank's two tensors on their way to the next rank, while those of the previous one come.
class Hop {
 public:
  Hop(Axis& axis, const std::string& where, std::uint16_t label, std::size_t count, DataType type)
      : axis_(axis), count_(count), type_(type), sent_(where, label), received_(where, label) {}

  void send(ConstantKeys from) {
    const int next = (axis_.rank() + 1) % axis_.size();
    for (const void* tensor : {from.k, from.v}) start(sent_, tensor, nullptr, next);
  }
  void receive(Keys to) {
    const int previous = (axis_.rank() + axis_.size() - 1) % axis_.size();
    for (void* tensor : {to.k, to.v}) start(received_, nullptr, tensor, previous);
  }
  void wait_sent() { sent_.wait(); }
  void wait_received() { received_.wait(); }

 private:
  void start(InFlight& in_flight, const void* in, void* out, int peer) {
    Call call = call_of(Collective::send_recv, in, out, count_, type_);
    call.peer = peer;
    call.sends = in != nullptr;
    in_flight.add(axis_, call);
  }

  Axis& axis_;
  const std::size_t count_;
  const DataType type_;
  InFlight sent_, received_;
};

Keys take_keys(const BlockAttention& a, Workspace& w, DataType type) {
  const std::size_t bytes = a.key_bytes(a.layout().rows, type);
  std::byte* const k = w.take(bytes);
  return {k, w.take(bytes)};
}

struct ForwardBuffers {
  ForwardBuffers(const BlockAttention& a, Workspace& w) {
    if (a.alone()) return;
    const std::size_t rows = a.layout().rows;
    for (int i = 0; i < std::min(2, a.layout().ranks - 1); ++i) come[i] = take_keys(a, w, a.type());
    part = w.take(a.query_bytes(rows, a.type()));
    part_lse = w.take(a.lse_bytes(rows));
    if (a.narrow()) sum = w.take(a.query_bytes(rows, a.sum_type()));
  }
  Keys come[2];  // in turn: one comes while the other is used, and sent on
  std::byte* part = nullptr;
  std::byte* part_lse = nullptr;
  std::byte* sum = nullptr;
};

struct BackwardBuffers {
  BackwardBuffers(const BlockAttention& a, Workspace& w) {
    const std::size_t rows = a.layout().rows;
    delta = w.take(a.lse_bytes(rows));
    if (a.alone()) return;
    for (int i = 0; i < std::min(2, a.layout().ranks - 1); ++i) come[i] = take_keys(a, w, a.type());
    for (Keys& s : sums) s = take_keys(a, w, a.sum_type());
    part = take_keys(a, w, a.type());
    part_dq = w.take(a.query_bytes(rows, a.type()));
    if (a.narrow()) dq = w.take(a.query_bytes(rows, a.sum_type()));
  }
  std::byte* delta = nullptr;
  Keys come[2];
  Keys sums[2];  // of the gradients of keys: one comes while the other is sent on
  Keys part;
  std::byte* part_dq = nullptr;
  std::byte* dq = nullptr;
};

std::string place(const BlockAttention& a, const char* pass, int step) {
  return fmt::format("{}, {}, step {} of {}", a.what(), pass, step + 1, a.layout().ranks);
}

}  // namespace

std::size_t BlockAttention::ring_forward_bytes() const { return bytes_of<ForwardBuffers>(*this); }
std::size_t BlockAttention::ring_backward_bytes() const { return bytes_of<BackwardBuffers>(*this); }

void BlockAttention::ring_forward(const ForwardTensors& t) const {
  const int ranks = layout_.ranks;
  if (alone()) {
    for (const Part& part : layout_.parts(0)) {
      compute(ForwardBlock{.block = block_of(part, t.q, t.keys), .out = t.out, .lse = t.lse});
    }
    return;
  }
  const Allocated<ForwardBuffers> b(*this, memory_);
  std::string where;
  Hop hop(*axis_, where, label_, layout_.rows * key_row(), type());
  const std::size_t count = layout_.rows * query_row();
  void* const sum = narrow() ? b->sum : t.out;
  ConstantKeys keys = t.keys;
  for (int step = 0; step < ranks; ++step) {
    where = place(*this, "forward", step);
    const Keys next = b->come[step % 2];
    if (step + 1 < ranks) {
      hop.receive(next);
      hop.send(keys);
    }
    for (const Part& part : layout_.parts((layout_.rank - step + ranks) % ranks)) {
      const Block block = block_of(part, t.q, keys);
      if (step == 0) {  // all queries, and the first keys that they see
        compute(ForwardBlock{.block = block, .out = t.out, .lse = t.lse});
        if (narrow()) device().convert(type(), t.out, sum_type(), sum, count);
      } else {
        compute(ForwardBlock{.block = block, .out = b->part, .lse = b->part_lse});
        math().merge(type(), part.queries.count * lse_row(), shape_.dim, b->part, b->part_lse,
                     at(sum, query_bytes(part.queries.first, sum_type())),
                     at(t.lse, lse_bytes(part.queries.first)));
      }
    }
    hop.wait_received();
    hop.wait_sent();
    keys = next;
  }
  if (narrow()) device().convert(sum_type(), sum, type(), t.out, count);
}

void BlockAttention::ring_backward(const BackwardTensors& t) const {
  const int ranks = layout_.ranks;
  const Allocated<BackwardBuffers> b(*this, memory_);
  write_delta(t, b->delta);
  if (alone()) {
    for (const Part& part : layout_.parts(0)) {
      compute(part, t.keys, t, b->delta, t.dq, t.gradients);
    }
    return;
  }
  const std::size_t rows = layout_.rows, key_count = rows * key_row();
  void* const dq = narrow() ? b->dq : t.dq;
  device().zero(dq, query_bytes(rows, sum_type()));
  for (void* sum : {b->sums[0].k, b->sums[0].v}) device().zero(sum, key_bytes(rows, sum_type()));

  const auto attend = [&](const Part& part, ConstantKeys keys) {
    compute(part, keys, t, b->delta, b->part_dq, b->part);
    math().add_part(type(), part.queries.count * query_row(), b->part_dq,
                    at(dq, query_bytes(part.queries.first, sum_type())));
  };
  const auto add_to = [&](Keys sums, const Part& part) {
    const std::size_t skipped = key_bytes(part.keys.first, sum_type()),
                      count = part.keys.count * key_row();
    math().add_part(type(), count, b->part.k, at(sums.k, skipped));
    math().add_part(type(), count, b->part.v, at(sums.v, skipped));
  };

  std::string where;
  Hop keys_hop(*axis_, where, label_, key_count, type()),
      sums_hop(*axis_, where, label_, key_count, sum_type());
  ConstantKeys keys = t.keys;
  for (int step = 0; step < ranks; ++step) {
    where = place(*this, "backward", step);
    const Keys next = b->come[step % 2], sums = b->sums[step % 2];
    // The previous rank has sent the sums before the keys.
    if (step > 0) sums_hop.receive(sums);
    if (step + 1 < ranks) {
      keys_hop.receive(next);
      keys_hop.send(keys);
    }
    if (step == 0) {
      for (const Part& part : layout_.early()) {
        attend(part, keys);
        add_to(sums, part);
      }
    } else {
      const std::vector<Part> parts = layout_.parts((layout_.rank - step + ranks) % ranks);
      for (const Part& part : parts) attend(part, keys);
      sums_hop.wait_received();
      for (const Part& part : parts) add_to(sums, part);
    }
    sums_hop.wait_sent();  // of the last step, before its memory gets the next sums
    sums_hop.send(sums);
    keys_hop.wait_received();
    keys_hop.wait_sent();
    keys = next;
  }

  where = fmt::format("{}, backward, the sums' way home", what_);
  const Keys home = narrow() ? b->sums[ranks % 2] : t.gradients;
  sums_hop.receive(home);
  const std::vector<Part> late = layout_.late();
  for (const Part& part : late) attend(part, t.keys);
  sums_hop.wait_received();
  for (const Part& part : late) add_to(home, part);
  sums_hop.wait_sent();
  if (narrow()) {
    device().convert(sum_type(), dq, type(), t.dq, rows * query_row());
    device().convert(sum_type(), home.k, type(), t.gradients.k, key_count);
    device().convert(sum_type(), home.v, type(), t.gradients.v, key_count);
  }
}

}  // namespace tutti::parallel::sequence
