// The calls of a Communicator with typed buffers: anything with contiguous elements (a span, a
// vector with any allocator, an array) of a type that DataTypeOf knows. Counts and data types
// follow from the buffers. Sizes that do not fit throw an Error, which names the needed size.
//
//     std::vector<float, tutti::Allocator<float>> x(1000);
//     comm.all_reduce(x);                               // in place
//     comm.all_gather(std::span(x).first(10), all);     // all: 10 * comm.size() elements
//
// Each calls the function of the same name in communicator.h. Buffers that only a root needs may be
// empty elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <type_traits>

#include "../core/types.h"

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

/// The base of Communicator, `C`. Functions of `C` that take pointers do the work.
template <class C>
class TypedCalls {
 public:
  using Counts = std::span<const std::size_t>;

  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  void all_reduce(const In& in, Out&& out, ReduceOp op = {}) {
    need("all_reduce", "output", n(out), n(in));
    comm().all_reduce(data(in), data(out), n(in), kType<In>, op);
  }
  /// In place.
  template <OutputBuffer Buffer>
  void all_reduce(Buffer&& buffer, ReduceOp op = {}) {
    comm().all_reduce(data(buffer), data(buffer), n(buffer), kType<Buffer>, op);
  }
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  void all_gather(const In& in, Out&& out) {
    need("all_gather", "output", n(out), n(in), ranks());
    comm().all_gather(data(in), data(out), n(in), kType<In>);
  }
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  void reduce_scatter(const In& in, Out&& out, ReduceOp op = {}) {
    need("reduce_scatter", "input", n(in), n(out), ranks());
    comm().reduce_scatter(data(in), data(out), n(out), kType<In>, op);
  }
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  void broadcast(const In& in, Out&& out, int root) {
    if (is_root(root)) need("broadcast", "input", n(in), n(out));
    comm().broadcast(data(in), data(out), n(out), kType<In>, root);
  }
  /// In place.
  template <OutputBuffer Buffer>
  void broadcast(Buffer&& buffer, int root) {
    comm().broadcast(data(buffer), data(buffer), n(buffer), kType<Buffer>, root);
  }
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  void reduce(const In& in, Out&& out, int root, ReduceOp op = {}) {
    if (is_root(root)) need("reduce", "output", n(out), n(in));
    comm().reduce(data(in), data(out), n(in), kType<In>, op, root);
  }
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  void gather(const In& in, Out&& out, int root) {
    if (is_root(root)) need("gather", "output", n(out), n(in), ranks());
    comm().gather(data(in), data(out), n(in), kType<In>, root);
  }
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  void scatter(const In& in, Out&& out, int root) {
    if (is_root(root)) need("scatter", "input", n(in), n(out), ranks());
    comm().scatter(data(in), data(out), n(out), kType<In>, root);
  }
  /// Each of size() blocks has as many elements as the others.
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  void all_to_all(const In& in, Out&& out) {
    need("all_to_all", "output", n(out), n(in));
    need("all_to_all", "input", n(in), n(in) / ranks(), ranks());
    comm().all_to_all(data(in), data(out), n(in) / ranks(), kType<In>);
  }

  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  void all_gather_v(const In& in, Out&& out, Counts counts, Counts offsets = {}) {
    if (counts.size() == ranks()) need("all_gather_v", "input", n(in), counts[rank()]);
    need_extent("all_gather_v", "output", n(out), counts, offsets);
    comm().all_gather_v(data(in), data(out), counts, offsets, kType<In>);
  }
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  void reduce_scatter_v(const In& in, Out&& out, Counts counts, ReduceOp op = {}) {
    need_extent("reduce_scatter_v", "input", n(in), counts, {});
    if (counts.size() == ranks()) need("reduce_scatter_v", "output", n(out), counts[rank()]);
    comm().reduce_scatter_v(data(in), data(out), counts, kType<In>, op);
  }
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  void all_to_all_v(const In& in, Counts in_counts, Counts in_offsets, Out&& out, Counts out_counts,
                    Counts out_offsets) {
    need_extent("all_to_all_v", "input", n(in), in_counts, in_offsets);
    need_extent("all_to_all_v", "output", n(out), out_counts, out_offsets);
    comm().all_to_all_v(data(in), in_counts, in_offsets, data(out), out_counts, out_offsets,
                        kType<In>);
  }
  /// Packed.
  template <InputBuffer In, OutputBuffer<ElementOf<In>> Out>
  void all_to_all_v(const In& in, Counts in_counts, Out&& out, Counts out_counts) {
    all_to_all_v(in, in_counts, {}, out, out_counts, {});
  }

  template <InputBuffer In>
  void send(const In& in, int peer) {
    comm().send(data(in), n(in), kType<In>, peer);
  }
  template <OutputBuffer Out>
  void recv(Out&& out, int peer) {
    comm().recv(data(out), n(out), kType<Out>, peer);
  }

 private:
  template <class R>
  static constexpr DataType kType = DataTypeOf<ElementOf<R>>::value;

  static std::size_t n(const auto& buffer) { return std::ranges::size(buffer); }
  static auto* data(auto&& buffer) { return std::ranges::data(buffer); }

  C& comm() { return static_cast<C&>(*this); }
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
