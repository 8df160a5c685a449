#include "parallel/sequence/attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "parallel/agreement.h"
#include "parallel/in_flight.h"
#include "parallel/memory_need.h"
#include "parallel/sequence/block_attention.h"
#include "parallel/sequence/heads.h"
#include "parallel/sequence/workspace.h"

namespace tutti::parallel::sequence {
namespace {

std::size_t size_of_axis(const Axis* axis) {
  return axis == nullptr ? 1 : static_cast<std::size_t>(axis->size());
}
/// Of the axes that there are.
Device& device_of(const AttentionAxes& axes) {
  const Axis* const axis = axes.heads != nullptr ? axes.heads : axes.keys;
  return axis == nullptr ? host_device() : axis->device();
}
int rank_of_axis(const Axis* axis) { return axis == nullptr ? 0 : axis->rank(); }

AttentionShape completed(AttentionShape s) {
  if (s.kv_heads == 0) s.kv_heads = s.heads;
  return s;
}

template <class... Arguments>
[[noreturn]] void refuse(const std::string& what, fmt::format_string<Arguments...> text,
                         Arguments&&... arguments) {
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("{}: {}", what, fmt::format(text, std::forward<Arguments>(arguments)...)));
}

Agreement all_ranks(const std::string& what, const AttentionAxes& axes) {
  if (axes.heads == nullptr && axes.keys == nullptr) refuse(what, "it needs an axis");
  if (axes.heads == nullptr) return *axes.keys;
  try {
    return {*axes.heads, axes.keys};
  } catch (const Error& e) {
    refuse(what, "{}", e.what());
  }
}

/// The same on all ranks, once they have compared their settings.
void check(const std::string& what, const AttentionShape& s, const AttentionOptions& options,
           std::size_t heads_ranks, std::size_t keys_ranks) {
  if (s.type != DataType::float64 && s.type != DataType::float32 && s.type != DataType::float16 &&
      s.type != DataType::bfloat16) {
    refuse(what, "it is for floats of 16, 32 and 64 bits, not {}", name(s.type));
  }
  for (const std::size_t size : {s.sequence, s.batch, s.heads, s.dim}) {
    if (size == 0) {
      refuse(what, "sequence {}, batch {}, heads {} and dim {} must all be at least 1", s.sequence,
             s.batch, s.heads, s.dim);
    }
  }
  if (static_cast<double>(s.sequence) * static_cast<double>(s.batch) *
          static_cast<double>(s.heads) * static_cast<double>(s.dim) >
      kMostElements) {
    refuse(what, "sequence {} x batch {} x heads {} x dim {} is more than {} elements", s.sequence,
           s.batch, s.heads, s.dim, kMostElements);
  }
  const std::size_t ranks = heads_ranks * keys_ranks;
  if (s.sequence % ranks != 0) {
    refuse(what,
           "{} positions of the sequence cannot be divided among {} ranks; make them a "
           "multiple of it",
           s.sequence, ranks);
  }
  if (options.order == SequenceOrder::zigzag && s.sequence % (2 * keys_ranks) != 0) {
    refuse(what,
           "{} positions of the sequence cannot be divided into 2 chunks for each of {} ranks "
           "of the keys axis, as zigzag order does; make them a multiple of {}",
           s.sequence, keys_ranks, 2 * keys_ranks);
  }
  if (s.heads % s.kv_heads != 0) {
    refuse(what, "{} query heads cannot be divided among {} key heads; make them a multiple of it",
           s.heads, s.kv_heads);
  }
  if (s.heads < heads_ranks) {
    refuse(what,
           "{} heads are too few for {} ranks of the heads axis; give the other ranks to the "
           "keys axis",
           s.heads, heads_ranks);
  }
}

std::string described(const AttentionShape& s, const AttentionOptions& o, const Kernel& kernel) {
  return fmt::format(
      "attention of {} positions, batch {}, {} heads, {} key heads, dim {}, {}, {}, keys by {}, {} "
      "order{}",
      s.sequence, s.batch, s.heads, s.kv_heads, s.dim, name(s.type),
      s.causal ? "causal" : "not causal", o.keys == KeysTravel::ring ? "ring" : "all_gather",
      o.order == SequenceOrder::zigzag ? "zigzag" : "contiguous",
      kernel.forward && kernel.backward ? "" : ", without a kernel");
}

/// The heads of rank `rank` and the exchanges that bring them there.
struct Ulysses {
  Ulysses(Axis& axis, const AttentionShape& s, std::size_t rows)
      : Ulysses(axis, s, rows,
                share_heads(s.heads, s.kv_heads, static_cast<std::size_t>(axis.size()))) {}

  HeadShare own;
  HeadExchange queries, keys;

 private:
  Ulysses(Axis& axis, const AttentionShape& s, std::size_t rows,
          const std::vector<HeadShare>& shares)
      : own(shares[static_cast<std::size_t>(axis.rank())]),
        queries(axis, s.heads, ranges(shares, &HeadShare::queries), rows, s.batch, s.dim, s.type),
        keys(axis, s.kv_heads, ranges(shares, &HeadShare::keys), rows, s.batch, s.dim, s.type) {}
  static std::vector<Range> ranges(const std::vector<HeadShare>& shares, Range HeadShare::*member) {
    std::vector<Range> result;
    for (const HeadShare& s : shares) result.push_back(s.*member);
    return result;
  }
};

/// Messages of three tensors that travel at once.
struct Messages {
  Messages(const Ulysses& u, Workspace& w)
      : q(w.take(u.queries.message_bytes())),
        k(w.take(u.keys.message_bytes())),
        v(w.take(u.keys.message_bytes())) {}
  std::byte *q, *k, *v;
};
/// Gradients with the rows of all ranks.
struct HeadGradients {
  HeadGradients(const Ulysses& u, Workspace& w)
      : dout(w.take(u.queries.share_bytes())),
        dq(w.take(u.queries.share_bytes())),
        dk(w.take(u.keys.share_bytes())),
        dv(w.take(u.keys.share_bytes())) {}
  std::byte *dout, *dq, *dk, *dv;
};
struct HeadTensors {
  HeadTensors(const Ulysses& u, Workspace& w)
      : q(w.take(u.queries.share_bytes())),
        k(w.take(u.keys.share_bytes())),
        v(w.take(u.keys.share_bytes())),
        out(w.take(u.queries.share_bytes())) {}
  std::byte *q, *k, *v, *out;
};

}  // namespace

class ContextParallelAttention::Impl {
 public:
  Impl(AttentionAxes axes, const AttentionShape& shape, const Kernel& kernel,
       AttentionOptions options)
      : what_(fmt::format("attention '{}'", shape.name)),
        shape_(completed(shape)),
        pool_(MemoryPool::Reuse::yes, device_of(axes)) {
    const Agreement ranks = all_ranks(what_, axes);
    const std::string line = described(shape_, options, kernel);
    agree(ranks, what_, {&line, 1});
    axes_ = axes;
    if (axes.heads != nullptr) heads_label_ = axes.heads->new_label(what_);
    layer_math_of(pool_.device(), what_);
    if (axes.heads != nullptr && axes.keys != nullptr &&
        &axes.heads->device() != &axes.keys->device()) {
      refuse(what_, "its axes are on different devices");
    }
    if (!kernel.forward || !kernel.backward) refuse(what_, "the kernel lacks a function");
    const std::size_t heads_ranks = size_of_axis(axes.heads), keys_ranks = size_of_axis(axes.keys);
    check(what_, shape_, options, heads_ranks, keys_ranks);

    rows_ = shape_.sequence / (heads_ranks * keys_ranks);
    first_ = rows_ * static_cast<std::size_t>(rank_of_axis(axes.heads));
    Block block{.type = shape_.type,
                .batch = shape_.batch,
                .heads = shape_.heads,
                .kv_heads = shape_.kv_heads,
                .dim = shape_.dim};
    if (heads_ranks > 1) {
      ulysses_.emplace(*axes.heads, shape_, rows_);
      block.heads = ulysses_->own.queries.count;
      block.kv_heads = ulysses_->own.keys.count;
    }
    std::vector<Axis*> job;
    for (Axis* axis : {axes.heads, axes.keys}) {
      if (axis != nullptr) job.push_back(axis);
    }
    const SequenceLayout layout{.order = options.order,
                                .causal = shape_.causal,
                                .rows = shape_.sequence / keys_ranks,
                                .rank = rank_of_axis(axes.keys),
                                .ranks = static_cast<int>(keys_ranks)};
    gathers_ = options.keys == KeysTravel::all_gather && keys_ranks > 1;
    blocks_.emplace(what_, axes.keys, job, layout, block, kernel, pool_);
    agree_on_memory(ranks, what_, call_bytes() + saved_bytes(), pool_.device());
  }

  std::size_t rows() const { return rows_; }
  std::size_t position(std::size_t row) const {
    const SequenceLayout& layout = blocks_->layout();
    return layout.position(layout.rank, first_ + row);
  }

  void forward(const void* q, const void* k, const void* v, void* out, Saved& saved) {
    saved = {};
    or_abort({axes_.heads, axes_.keys}, what_, [&] {
      pool_.device().check_memory(
          what_, {{"q", q, rows_}, {"k", k, rows_}, {"v", v, rows_}, {"out", out, rows_}});
      saved.memory_ = pool_.allocate(saved_bytes());
    });
    Workspace workspace(saved.memory_.data());
    if (!ulysses_) {
      void* const lse = workspace.take(blocks_->lse_bytes(blocks_->layout().rows));
      attend(ForwardTensors{.q = q, .keys = {k, v}, .out = out, .lse = lse});
      remember(saved, q, k, v, out, lse);
      return;
    }
    const Ulysses& u = *ulysses_;
    const HeadTensors t(u, workspace);
    void* const lse = workspace.take(blocks_->lse_bytes(blocks_->layout().rows));
    const Allocated<Messages> messages(u, pool_);
    exchange("its queries, keys and values to heads", [&](InFlight& in_flight) {
      u.queries.to_heads(in_flight, q, messages->q, t.q);
      u.keys.to_heads(in_flight, k, messages->k, t.k);
      u.keys.to_heads(in_flight, v, messages->v, t.v);
    });
    attend(ForwardTensors{.q = t.q, .keys = {t.k, t.v}, .out = t.out, .lse = lse});
    exchange("its output to rows",
             [&](InFlight& in_flight) { u.queries.to_rows(in_flight, t.out, messages->q); });
    u.queries.finish(messages->q, out);
    remember(saved, t.q, t.k, t.v, t.out, lse);
  }

  void backward(const void* dout, const Saved& saved, void* dq, void* dk, void* dv) {
    or_abort({axes_.heads, axes_.keys}, what_, [&] {
      if (saved.of_ != this || !saved.memory_) {
        throw Error(
            ErrorCode::invalid_usage,
            fmt::format("{}: the backward of no forward; pass what a forward has saved", what_));
      }
      pool_.device().check_memory(
          what_, {{"dout", dout, rows_}, {"dq", dq, rows_}, {"dk", dk, rows_}, {"dv", dv, rows_}});
    });
    BackwardTensors t{.q = saved.q_,
                      .keys = {saved.k_, saved.v_},
                      .out = saved.out_,
                      .lse = saved.lse_,
                      .dout = dout,
                      .dq = dq,
                      .gradients = {dk, dv}};
    if (!ulysses_) return attend(t);
    const Ulysses& u = *ulysses_;
    const Allocated<Messages> messages(u, pool_);
    const Allocated<HeadGradients> heads(u, pool_);
    exchange("its output's gradient to heads", [&](InFlight& in_flight) {
      u.queries.to_heads(in_flight, dout, messages->q, heads->dout);
    });
    t.dout = heads->dout;
    t.dq = heads->dq;
    t.gradients = {heads->dk, heads->dv};
    attend(t);
    exchange("its gradients to rows", [&](InFlight& in_flight) {
      u.queries.to_rows(in_flight, heads->dq, messages->q);
      u.keys.to_rows(in_flight, heads->dk, messages->k);
      u.keys.to_rows(in_flight, heads->dv, messages->v);
    });
    u.queries.finish(messages->q, dq);
    u.keys.finish(messages->k, dk);
    u.keys.finish(messages->v, dv);
  }

  MemoryUse memory() const { return pool_.total(); }
  std::size_t call_bytes() const {
    std::size_t forward =
                    gathers_ ? blocks_->gathered_forward_bytes() : blocks_->ring_forward_bytes(),
                backward =
                    gathers_ ? blocks_->gathered_backward_bytes() : blocks_->ring_backward_bytes();
    if (ulysses_) {
      forward += bytes_of<Messages>(*ulysses_);
      backward += bytes_of<Messages>(*ulysses_) + bytes_of<HeadGradients>(*ulysses_);
    }
    return std::max(forward, backward);
  }
  std::size_t saved_bytes() const {
    Workspace count;
    if (ulysses_) HeadTensors(*ulysses_, count);
    count.take(blocks_->lse_bytes(blocks_->layout().rows));
    return count.used();
  }

 private:
  void attend(const ForwardTensors& t) const {
    gathers_ ? blocks_->gathered_forward(t) : blocks_->ring_forward(t);
  }
  void attend(const BackwardTensors& t) const {
    gathers_ ? blocks_->gathered_backward(t) : blocks_->ring_backward(t);
  }
  void remember(Saved& saved, const void* q, const void* k, const void* v, const void* out,
                const void* lse) const {
    saved.of_ = this;
    saved.q_ = q;
    saved.k_ = k;
    saved.v_ = v;
    saved.out_ = out;
    saved.lse_ = lse;
  }
  /// Starts all-to-alls, and waits for them.
  template <class Start>
  void exchange(const char* of, const Start& start) const {
    const std::string where = fmt::format("{}, {}", what_, of);
    InFlight in_flight(where, heads_label_);
    start(in_flight);
    in_flight.wait();
  }

  const std::string what_;
  const AttentionShape shape_;
  AttentionAxes axes_;
  std::uint16_t heads_label_ = 0;
  std::size_t rows_ = 0, first_ = 0;
  bool gathers_ = false;
  MemoryPool pool_;
  std::optional<Ulysses> ulysses_;
  std::optional<BlockAttention> blocks_;
};

ContextParallelAttention::ContextParallelAttention(AttentionAxes axes, AttentionShape shape,
                                                   Kernel kernel, AttentionOptions options)
    : impl_(std::make_unique<Impl>(axes, shape, kernel, options)) {}

ContextParallelAttention::~ContextParallelAttention() = default;

std::size_t ContextParallelAttention::rows() const { return impl_->rows(); }
std::size_t ContextParallelAttention::position(std::size_t row) const {
  return impl_->position(row);
}

void ContextParallelAttention::forward(const void* q, const void* k, const void* v, void* out,
                                       Saved& saved) {
  impl_->forward(q, k, v, out, saved);
}

void ContextParallelAttention::backward(const void* dout, const Saved& saved, void* dq, void* dk,
                                        void* dv) {
  impl_->backward(dout, saved, dq, dk, dv);
}

MemoryUse ContextParallelAttention::memory() const { return impl_->memory(); }
std::size_t ContextParallelAttention::call_bytes() const { return impl_->call_bytes(); }
std::size_t ContextParallelAttention::saved_bytes() const { return impl_->saved_bytes(); }

}  // namespace tutti::parallel::sequence
