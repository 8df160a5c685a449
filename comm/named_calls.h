// The named functions of a communicator: a function for each operation, which fills a Call. Each
// exists in three forms, with the same arguments:
//
//     comm.all_reduce(in, out, count, type);             // blocks
//     Future f = comm.start().all_reduce(in, out, count, type);
//     comm.on(stream).all_reduce(in, out, count, type);  // GPU memory, on a stream of its GPU
//
// The order of arguments is in, out, count, type, op, root or peer. In v-variants, the counts and
// offsets of a buffer follow it, as in MPI: counts[r] elements from offsets[r] on are rank r's;
// empty offsets: packed. All are in elements. Each function also takes typed buffers: anything with
// contiguous elements (a span, a vector, an array) of a type that DataTypeOf knows. Counts and
// types follow from them. Sizes that do not fit throw an Error, which names the needed size; where
// only a root needs a buffer, it may be empty elsewhere.
//
//     comm.all_reduce(x);                               // a vector, in place
//     comm.all_gather(std::span(x).first(10), all);     // all: 10 * comm.size() elements
#pragma once

#include <cstddef>
#include <ranges>
#include <span>
#include <type_traits>

// Relative, so that the installed headers need only <prefix>/include on the search path.
#include "../core/types.h"
#include "call.h"

namespace tutti {

/// The DataType of a C++ type. Specialise it for types of your own (16- and 8-bit floats, for
/// instance).
template <class T>
struct DataTypeOf;
template <class T>
requires(std::is_integral_v<T> && !std::is_same_v<T, bool> &&
         (sizeof(T) == 1 || sizeof(T) == 4 || sizeof(T) == 8)) struct DataTypeOf<T> {
  static constexpr bool is_signed = std::is_signed_v<T>;
  static constexpr DataType value = sizeof(T) == 1 ? is_signed ? DataType::int8 : DataType::uint8
                                    : sizeof(T) == 4
                                        ? is_signed ? DataType::int32 : DataType::uint32
                                    : is_signed ? DataType::int64
                                                : DataType::uint64;
};
template <>
struct DataTypeOf<float> {
  static constexpr DataType value = DataType::float32;
};
template <>
struct DataTypeOf<double> {
  static constexpr DataType value = DataType::float64;
};
template <>
struct DataTypeOf<std::byte> {
  static constexpr DataType value = DataType::uint8;
};
// GCC 12 has the type in C++ on x86, but not on ARM.
#if defined(__FLT16_MAX__) && (defined(__x86_64__) || defined(__clang__) || __GNUC__ >= 13)
template <>
struct DataTypeOf<_Float16> {
  static constexpr DataType value = DataType::float16;
};
#endif

template <class R>
using ElementOf = std::remove_cv_t<std::ranges::range_value_t<R>>;

/// An input buffer.
template <class R>
concept InputBuffer = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
    size_of(DataTypeOf<ElementOf<R>>::value)
== sizeof(ElementOf<R>);
/// An output buffer of elements T; not a temporary vector, since its result would be lost.
template <class R, class T = ElementOf<R>>
concept OutputBuffer =
    InputBuffer<R> && std::ranges::borrowed_range<R> && std::is_same_v<ElementOf<R>, T> &&
    !std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>;

/// `Self`: a Communicator, or a form of its calls (communicator.h): its submit() takes a Call and
/// returns a `Result`.
template <class Self, class Result>
class NamedCalls {
 public:
  using Counts = std::span<const std::size_t>;

  // Calls are aggregates: GCC clears a Call of its own with `rep stos`, which takes 10 ns to start.
  // Operators are copied field by field: 16 bytes that are read at once, out of the caller's two
  // smaller stores, would wait for all stores before them.

  /// out[i] = in_0[i] op in_1[i] op ... on every rank; the same bits on all.
  Result all_reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op = {}) {
    return submit({Collective::all_reduce, in, out, count, type, comm().copy(op)});
  }
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  Result all_reduce(const In& in, Out&& out, ReduceOp op = {}) {
    need("all_reduce", "output", n(out), n(in));
    return all_reduce(data(in), data(out), n(in), kType<In>, op);
  }
  /// In place.
  template <OutputBuffer Buffer>
  Result all_reduce(Buffer&& buffer, ReduceOp op = {}) {
    return all_reduce(data(buffer), data(buffer), n(buffer), kType<Buffer>, op);
  }

  /// out = in_0, in_1, ...: `count` elements from every rank. In place: in == out + rank * count.
  Result all_gather(const void* in, void* out, std::size_t count, DataType type) {
    return submit({Collective::all_gather, in, out, count, type});
  }
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  Result all_gather(const In& in, Out&& out) {
    need("all_gather", "output", n(out), n(in), ranks());
    return all_gather(data(in), data(out), n(in), kType<In>);
  }

  /// out = block `rank` of the reduction of `in` (size() blocks of `count`). In place: out == in +
  /// rank * count.
  Result reduce_scatter(const void* in, void* out, std::size_t count, DataType type,
                        ReduceOp op = {}) {
    return submit({Collective::reduce_scatter, in, out, count, type, comm().copy(op)});
  }
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  Result reduce_scatter(const In& in, Out&& out, ReduceOp op = {}) {
    need("reduce_scatter", "input", n(in), n(out), ranks());
    return reduce_scatter(data(in), data(out), n(out), kType<In>, op);
  }

  /// out = the root's `in`. `in` is read on the root only.
  Result broadcast(const void* in, void* out, std::size_t count, DataType type, int root) {
    return submit({Collective::broadcast, in, out, count, type, {}, root});
  }
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  Result broadcast(const In& in, Out&& out, int root) {
    if (is_root(root)) need("broadcast", "input", n(in), n(out));
    return broadcast(data(in), data(out), n(out), kType<In>, root);
  }
  /// In place.
  template <OutputBuffer Buffer>
  Result broadcast(Buffer&& buffer, int root) {
    return broadcast(data(buffer), data(buffer), n(buffer), kType<Buffer>, root);
  }

  /// The root's out = the reduction. Elsewhere `out` may be null and is never written.
  Result reduce(const void* in, void* out, std::size_t count, DataType type, ReduceOp op,
                int root) {
    return submit({Collective::reduce, in, out, count, type, comm().copy(op), root});
  }
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  Result reduce(const In& in, Out&& out, ReduceOp op, int root) {
    if (is_root(root)) need("reduce", "output", n(out), n(in));
    return reduce(data(in), data(out), n(in), kType<In>, op, root);
  }
  /// The sum.
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  Result reduce(const In& in, Out&& out, int root) {
    return reduce(in, out, {}, root);
  }

  /// The root's out = in_0, in_1, ... Elsewhere `out` may be null. In place: in == out + root *
  /// count.
  Result gather(const void* in, void* out, std::size_t count, DataType type, int root) {
    return submit({Collective::gather, in, out, count, type, {}, root});
  }
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  Result gather(const In& in, Out&& out, int root) {
    if (is_root(root)) need("gather", "output", n(out), n(in), ranks());
    return gather(data(in), data(out), n(in), kType<In>, root);
  }

  /// out = block `rank` of the root's `in`. In place: out == in + root * count on the root.
  Result scatter(const void* in, void* out, std::size_t count, DataType type, int root) {
    return submit({Collective::scatter, in, out, count, type, {}, root});
  }
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  Result scatter(const In& in, Out&& out, int root) {
    if (is_root(root)) need("scatter", "input", n(in), n(out), ranks());
    return scatter(data(in), data(out), n(out), kType<In>, root);
  }

  /// Block i of `in` goes to rank i; block j of `out` comes from rank j. No in-place form.
  Result all_to_all(const void* in, void* out, std::size_t count, DataType type) {
    return submit({Collective::all_to_all, in, out, count, type});
  }
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  Result all_to_all(const In& in, Out&& out) {
    need("all_to_all", "output", n(out), n(in));
    need("all_to_all", "input", n(in), n(in) / ranks(), ranks());
    return all_to_all(data(in), data(out), n(in) / ranks(), kType<In>);
  }

  /// As all_gather with counts[r] elements from rank r, at offsets[r] of `out`.
  Result all_gather_v(const void* in, void* out, Counts counts, Counts offsets, DataType type) {
    return submit_v({Collective::all_gather_v, in, out, 0, type}, {}, {}, counts, offsets);
  }
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  Result all_gather_v(const In& in, Out&& out, Counts counts, Counts offsets = {}) {
    if (counts.size() == ranks()) need("all_gather_v", "input", n(in), counts[rank()]);
    need_extent("all_gather_v", "output", n(out), counts, offsets);
    return all_gather_v(data(in), data(out), counts, offsets, kType<In>);
  }

  /// As reduce_scatter with counts[r] elements for rank r, at offsets[r] of `in`.
  Result reduce_scatter_v(const void* in, Counts counts, Counts offsets, void* out, DataType type,
                          ReduceOp op = {}) {
    return submit_v({Collective::reduce_scatter_v, in, out, 0, type, op}, counts, offsets, {}, {});
  }
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  Result reduce_scatter_v(const In& in, Counts counts, Counts offsets, Out&& out,
                          ReduceOp op = {}) {
    need_extent("reduce_scatter_v", "input", n(in), counts, offsets);
    if (counts.size() == ranks()) need("reduce_scatter_v", "output", n(out), counts[rank()]);
    return reduce_scatter_v(data(in), counts, offsets, data(out), kType<In>, op);
  }

  /// in_counts[r] elements from in_offsets[r] go to rank r; out_counts[r] from rank r land at
  /// out_offsets[r].
  Result all_to_all_v(const void* in, Counts in_counts, Counts in_offsets, void* out,
                      Counts out_counts, Counts out_offsets, DataType type) {
    return submit_v({Collective::all_to_all_v, in, out, 0, type}, in_counts, in_offsets, out_counts,
                    out_offsets);
  }
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  Result all_to_all_v(const In& in, Counts in_counts, Counts in_offsets, Out&& out,
                      Counts out_counts, Counts out_offsets) {
    need_extent("all_to_all_v", "input", n(in), in_counts, in_offsets);
    need_extent("all_to_all_v", "output", n(out), out_counts, out_offsets);
    return all_to_all_v(data(in), in_counts, in_offsets, data(out), out_counts, out_offsets,
                        kType<In>);
  }
  /// all_to_all_v() of blocks that lie packed.
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  Result all_to_all_v(const In& in, Counts in_counts, Out&& out, Counts out_counts) {
    return all_to_all_v(in, in_counts, {}, out, out_counts, {});
  }

  /// Point to point. Messages of each pair match in order. A send to the own rank needs its recv in
  /// the same group(). A blocking send may return before the receiver has taken the data. It does
  /// not where the receiver copies from the sender's memory: from 64 KiB on (256 KiB, on a host
  /// with more ranks than cores), if the two are of one process, or the memory lies in a window
  /// (tutti::allocate()).
  Result send(const void* in, std::size_t count, DataType type, int peer) {
    return submit({Collective::send_recv, in, nullptr, count, type, {}, 0, peer, true});
  }
  template <InputBuffer In>
  Result send(const In& in, int peer) {
    return send(data(in), n(in), kType<In>, peer);
  }
  Result recv(void* out, std::size_t count, DataType type, int peer) {
    return submit({Collective::send_recv, nullptr, out, count, type, {}, 0, peer});
  }
  template <OutputBuffer Out>
  Result recv(Out&& out, int peer) {
    return recv(data(out), n(out), kType<Out>, peer);
  }

  Result barrier() { return submit({.collective = Collective::barrier}); }

 private:
  template <class R>
  static constexpr DataType kType = DataTypeOf<ElementOf<R>>::value;

  static std::size_t n(const auto& buffer) { return std::ranges::size(buffer); }
  static auto* data(auto&& buffer) { return std::ranges::data(buffer); }
  Result submit(const Call& call) { return static_cast<Self&>(*this).submit(call); }
  Result submit_v(Call call, Counts in_counts, Counts in_offsets, Counts out_counts,
                  Counts out_offsets) {
    call.in_counts = in_counts;
    call.in_offsets = in_offsets;
    call.out_counts = out_counts;
    call.out_offsets = out_offsets;
    return submit(call);
  }
  auto& comm() { return static_cast<Self&>(*this).communicator(); }
  std::size_t rank() { return static_cast<std::size_t>(comm().rank()); }
  std::size_t ranks() { return static_cast<std::size_t>(comm().size()); }
  bool is_root(int root) { return comm().rank() == root; }

  /// Checks that a buffer has `each` elements of, or for, each of the ranks.
  void need(const char* call, const char* buffer, std::size_t has, std::size_t each,
            std::size_t ranks = 1) {
    if (has == each * ranks) return;
    comm().refuse_size(call, buffer, has, each, ranks);
  }
  /// Checks that a buffer reaches to the end of its last block.
  void need_extent(const char* call, const char* buffer, std::size_t has, Counts counts,
                   Counts offsets) {
    std::size_t end = 0, packed = 0;
    for (std::size_t b = 0; b < counts.size(); ++b) {
      packed = (b < offsets.size() ? offsets[b] : packed) + counts[b];
      if (counts[b] > 0 && packed > end) end = packed;
    }
    if (has < end) comm().refuse_size(call, buffer, has, end, 1);
  }
};

}  // namespace tutti
