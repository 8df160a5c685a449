#include "bindings/mpi/type_make.h"

#include <algorithm>
#include <type_traits>

#include "bindings/mpi/error.h"

namespace tutti::mpi {
namespace {

template <class Int>
inline constexpr bool kLarge = !std::is_same_v<Int, int>;

void check_repeats(MPI_Count count) {
  if (count < 0) fail(MPI_ERR_COUNT, "the count is {}; it has to be 0 or more", count);
}

void check_length(MPI_Count length) {
  if (length < 0) fail(MPI_ERR_ARG, "a block's length is {}; it has to be 0 or more", length);
}

template <class Pointer>
void check_list(MPI_Count count, Pointer list) {
  if (count > 0 && list == nullptr)
    fail(MPI_ERR_ARG, "a list of {} entries is a null pointer", count);
}

MPI_Aint bytes_of(MPI_Count n, const Type& type) {
  MPI_Aint bytes = 0;
  if (__builtin_mul_overflow(n, type.extent(), &bytes)) {
    fail(MPI_ERR_COUNT, "a displacement of {} elements of {} bytes is beyond 2^63 - 1 bytes", n,
         type.extent());
  }
  return bytes;
}

/// Displacements go to the list that the procedure's C interface has them in.
template <class Int>
void add_addresses(Arguments& arguments, const MPI_Aint* addresses, MPI_Count n) {
  auto& list = kLarge<Int> ? arguments.counts : arguments.addresses;
  list.insert(list.end(), addresses, addresses + n);
}

}  // namespace

template <class Int>
TypeRef make_contiguous(Int count, const TypeRef& old) {
  check_repeats(count);
  Arguments arguments(MPI_COMBINER_CONTIGUOUS, kLarge<Int>);
  arguments.add(count);
  arguments.types = {old};
  return Type::repeat(1, count, 0, old, std::move(arguments));
}

template <class Int>
TypeRef make_vector(Int count, Int length, Int stride, const TypeRef& old) {
  check_repeats(count);
  check_length(length);
  Arguments arguments(MPI_COMBINER_VECTOR, kLarge<Int>);
  arguments.add(count);
  arguments.add(length);
  arguments.add(stride);
  arguments.types = {old};
  return Type::repeat(count, length, bytes_of(stride, *old), old, std::move(arguments));
}

template <class Int>
TypeRef make_hvector(Int count, Int length, MPI_Aint stride, const TypeRef& old) {
  check_repeats(count);
  check_length(length);
  Arguments arguments(MPI_COMBINER_HVECTOR, kLarge<Int>);
  arguments.add(count);
  arguments.add(length);
  add_addresses<Int>(arguments, &stride, 1);
  arguments.types = {old};
  return Type::repeat(count, length, stride, old, std::move(arguments));
}

template <class Int>
TypeRef make_indexed(Int count, const Int* lengths, const Int* displacements, const TypeRef& old) {
  check_repeats(count);
  check_list(count, lengths);
  check_list(count, displacements);
  Arguments arguments(MPI_COMBINER_INDEXED, kLarge<Int>);
  arguments.add(count);
  arguments.add(lengths, count);
  arguments.add(displacements, count);
  arguments.types = {old};
  std::vector<Type::Block> blocks;
  for (Int i = 0; i < count; ++i) {
    check_length(lengths[i]);
    blocks.push_back({lengths[i], bytes_of(displacements[i], *old), old});
  }
  return Type::of_blocks(std::move(blocks), std::move(arguments));
}

template <class Int>
TypeRef make_hindexed(Int count, const Int* lengths, const MPI_Aint* displacements,
                      const TypeRef& old) {
  check_repeats(count);
  check_list(count, lengths);
  check_list(count, displacements);
  Arguments arguments(MPI_COMBINER_HINDEXED, kLarge<Int>);
  arguments.add(count);
  arguments.add(lengths, count);
  add_addresses<Int>(arguments, displacements, count);
  arguments.types = {old};
  std::vector<Type::Block> blocks;
  for (Int i = 0; i < count; ++i) {
    check_length(lengths[i]);
    blocks.push_back({lengths[i], displacements[i], old});
  }
  return Type::of_blocks(std::move(blocks), std::move(arguments));
}

template <class Int>
TypeRef make_indexed_block(Int count, Int length, const Int* displacements, const TypeRef& old) {
  check_repeats(count);
  check_length(length);
  check_list(count, displacements);
  Arguments arguments(MPI_COMBINER_INDEXED_BLOCK, kLarge<Int>);
  arguments.add(count);
  arguments.add(length);
  arguments.add(displacements, count);
  arguments.types = {old};
  std::vector<Type::Block> blocks;
  for (Int i = 0; i < count; ++i) blocks.push_back({length, bytes_of(displacements[i], *old), old});
  return Type::of_blocks(std::move(blocks), std::move(arguments));
}

template <class Int>
TypeRef make_hindexed_block(Int count, Int length, const MPI_Aint* displacements,
                            const TypeRef& old) {
  check_repeats(count);
  check_length(length);
  check_list(count, displacements);
  Arguments arguments(MPI_COMBINER_HINDEXED_BLOCK, kLarge<Int>);
  arguments.add(count);
  arguments.add(length);
  add_addresses<Int>(arguments, displacements, count);
  arguments.types = {old};
  std::vector<Type::Block> blocks;
  for (Int i = 0; i < count; ++i) blocks.push_back({length, displacements[i], old});
  return Type::of_blocks(std::move(blocks), std::move(arguments));
}

template <class Int>
TypeRef make_struct(Int count, const Int* lengths, const MPI_Aint* displacements,
                    std::vector<TypeRef> types) {
  check_repeats(count);
  check_list(count, lengths);
  check_list(count, displacements);
  Arguments arguments(MPI_COMBINER_STRUCT, kLarge<Int>);
  arguments.add(count);
  arguments.add(lengths, count);
  add_addresses<Int>(arguments, displacements, count);
  std::vector<Type::Block> blocks;
  for (Int i = 0; i < count; ++i) {
    check_length(lengths[i]);
    blocks.push_back({lengths[i], displacements[i], types[static_cast<std::size_t>(i)]});
  }
  arguments.types = std::move(types);
  return Type::of_blocks(std::move(blocks), std::move(arguments));
}

template <class Int>
TypeRef make_resized(MPI_Aint lower_bound, MPI_Aint extent, const TypeRef& old) {
  Arguments arguments(MPI_COMBINER_RESIZED, kLarge<Int>);
  add_addresses<Int>(arguments, &lower_bound, 1);
  add_addresses<Int>(arguments, &extent, 1);
  arguments.types = {old};
  MPI_Aint upper = 0;
  if (__builtin_add_overflow(lower_bound, extent, &upper)) {
    fail(MPI_ERR_ARG, "the bounds {} and {} + {} are too far apart", lower_bound, lower_bound,
         extent);
  }
  return Type::resized(old, {lower_bound, upper}, std::move(arguments));
}

namespace {

/// One dimension of an array: `blocks`, in a row of `size` elements.
TypeRef row_of(std::vector<Type::Block> blocks, MPI_Count size, const TypeRef& element) {
  const TypeRef row = Type::of_blocks(std::move(blocks), Contents(MPI_COMBINER_STRUCT));
  return Type::resized(row, {0, bytes_of(size, *element)}, Contents(MPI_COMBINER_RESIZED));
}

/// The array's type with the contents that the program shall see.
TypeRef with_contents(const TypeRef& array, Arguments arguments) {
  return Type::resized(array, {array->lower_bound(), array->lower_bound() + array->extent()},
                       std::move(arguments));
}

void check_array(int dimensions, int order) {
  if (dimensions < 1)
    fail(MPI_ERR_ARG, "an array of {} dimensions; there has to be at least one", dimensions);
  if (order != MPI_ORDER_C && order != MPI_ORDER_FORTRAN) {
    fail(MPI_ERR_ARG, "the order of storage is {}; it has to be MPI_ORDER_C or MPI_ORDER_FORTRAN",
         order);
  }
}

/// Dimensions from the one whose elements lie side by side to the one whose elements are farthest
/// apart.
int dimension_at(int i, int dimensions, int order) {
  return order == MPI_ORDER_C ? dimensions - 1 - i : i;
}

}  // namespace

template <class Int>
TypeRef make_subarray(int dimensions, const Int* sizes, const Int* subsizes, const Int* starts,
                      int order, const TypeRef& old) {
  check_array(dimensions, order);
  check_list(dimensions, sizes);
  check_list(dimensions, subsizes);
  check_list(dimensions, starts);
  Arguments arguments(MPI_COMBINER_SUBARRAY, kLarge<Int>);
  arguments.add(dimensions);
  arguments.add(sizes, dimensions);
  arguments.add(subsizes, dimensions);
  arguments.add(starts, dimensions);
  arguments.add(order);
  arguments.types = {old};
  TypeRef type = old;
  for (int i = 0; i < dimensions; ++i) {
    const int d = dimension_at(i, dimensions, order);
    if (subsizes[d] < 1 || starts[d] < 0 || subsizes[d] > sizes[d] ||
        starts[d] > sizes[d] - subsizes[d]) {
      fail(MPI_ERR_ARG, "dimension {} takes {} elements from {} on, and has {}", d, subsizes[d],
           starts[d], sizes[d]);
    }
    type = row_of({{subsizes[d], bytes_of(starts[d], *type), type}}, sizes[d], type);
  }
  return with_contents(type, std::move(arguments));
}

namespace {

/// The elements of a row that one process of `processes` has, when blocks of `block` elements go to
/// each in turn.
std::vector<Type::Block> dealt(MPI_Count size, MPI_Count block, int process, int processes,
                               const TypeRef& element) {
  const MPI_Count round = block * processes, first = block * process;
  if (first >= size) return {};
  const MPI_Count whole = size - first < block ? 0 : (size - first - block) / round + 1;
  std::vector<Type::Block> blocks;
  if (whole > 0) {
    const TypeRef row = Type::repeat(whole, block, bytes_of(round, *element), element,
                                     Contents(MPI_COMBINER_HVECTOR));
    blocks.push_back({1, bytes_of(first, *element), row});
  }
  const MPI_Count last = first + whole * round;
  if (last < size)
    blocks.push_back({std::min(block, size - last), bytes_of(last, *element), element});
  return blocks;
}

MPI_Count block_size(int kind, int argument, MPI_Count size, int processes, int d) {
  const bool given = argument != MPI_DISTRIBUTE_DFLT_DARG;
  if (given && argument < 1 && kind != MPI_DISTRIBUTE_NONE) {
    fail(MPI_ERR_ARG, "the block size of dimension {} is {}; it has to be 1 or more", d, argument);
  }
  switch (kind) {
    case MPI_DISTRIBUTE_NONE:
      if (processes != 1)
        fail(MPI_ERR_ARG, "dimension {} is not distributed, over {} processes", d, processes);
      return size;
    case MPI_DISTRIBUTE_BLOCK:
      if (!given) return (size + processes - 1) / processes;
      if (static_cast<MPI_Count>(argument) * processes < size) {
        fail(MPI_ERR_ARG, "{} blocks of {} do not cover the {} elements of dimension {}", processes,
             argument, size, d);
      }
      return argument;
    case MPI_DISTRIBUTE_CYCLIC:
      return given ? argument : 1;
    default:
      fail(MPI_ERR_ARG,
           "the distribution of dimension {} is {}, which is none of MPI_DISTRIBUTE_...", d, kind);
  }
}

/// The process's place in the grid, whose last dimension varies fastest in either order of storage.
std::vector<int> place_in_grid(const Distribution& distribution) {
  MPI_Count processes = 1;
  for (int d = 0; d < distribution.dimensions; ++d) {
    if (distribution.grid[d] < 1)
      fail(MPI_ERR_ARG, "the grid has {} processes in dimension {}", distribution.grid[d], d);
    processes = std::min<MPI_Count>(processes * distribution.grid[d], MPI_Count{1} << 31);
  }
  if (processes != distribution.size || distribution.rank < 0 ||
      distribution.rank >= distribution.size) {
    fail(MPI_ERR_ARG, "rank {} of {} processes, in a grid of {}", distribution.rank,
         distribution.size, processes);
  }
  std::vector<int> place(static_cast<std::size_t>(distribution.dimensions));
  int rest = distribution.rank;
  for (int d = distribution.dimensions - 1; d >= 0; --d) {
    place[static_cast<std::size_t>(d)] = rest % distribution.grid[d];
    rest /= distribution.grid[d];
  }
  return place;
}

}  // namespace

template <class Int>
TypeRef make_darray(const Distribution& distribution, const Int* sizes, const TypeRef& old) {
  const int dimensions = distribution.dimensions;
  check_array(dimensions, distribution.order);
  for (const void* list :
       {static_cast<const void*>(sizes), static_cast<const void*>(distribution.kinds),
        static_cast<const void*>(distribution.arguments),
        static_cast<const void*>(distribution.grid)}) {
    check_list(dimensions, list);
  }
  Arguments arguments(MPI_COMBINER_DARRAY, kLarge<Int>);
  arguments.add(distribution.size);
  arguments.add(distribution.rank);
  arguments.add(dimensions);
  arguments.add(sizes, dimensions);
  arguments.add(distribution.kinds, dimensions);
  arguments.add(distribution.arguments, dimensions);
  arguments.add(distribution.grid, dimensions);
  arguments.add(distribution.order);
  arguments.types = {old};
  const std::vector<int> place = place_in_grid(distribution);
  TypeRef type = old;
  for (int i = 0; i < dimensions; ++i) {
    const int d = dimension_at(i, dimensions, distribution.order);
    if (sizes[d] < 1)
      fail(MPI_ERR_ARG, "dimension {} has {} elements; it has to have at least one", d, sizes[d]);
    const MPI_Count block = block_size(distribution.kinds[d], distribution.arguments[d], sizes[d],
                                       distribution.grid[d], d);
    type = row_of(
        dealt(sizes[d], block, place[static_cast<std::size_t>(d)], distribution.grid[d], type),
        sizes[d], type);
  }
  return with_contents(type, std::move(arguments));
}

#define TUTTI_MPI_MAKERS(Int)                                                                \
  template TypeRef make_contiguous<Int>(Int, const TypeRef&);                                \
  template TypeRef make_vector<Int>(Int, Int, Int, const TypeRef&);                          \
  template TypeRef make_hvector<Int>(Int, Int, MPI_Aint, const TypeRef&);                    \
  template TypeRef make_indexed<Int>(Int, const Int*, const Int*, const TypeRef&);           \
  template TypeRef make_hindexed<Int>(Int, const Int*, const MPI_Aint*, const TypeRef&);     \
  template TypeRef make_indexed_block<Int>(Int, Int, const Int*, const TypeRef&);            \
  template TypeRef make_hindexed_block<Int>(Int, Int, const MPI_Aint*, const TypeRef&);      \
  template TypeRef make_struct<Int>(Int, const Int*, const MPI_Aint*, std::vector<TypeRef>); \
  template TypeRef make_resized<Int>(MPI_Aint, MPI_Aint, const TypeRef&);                    \
  template TypeRef make_subarray<Int>(int, const Int*, const Int*, const Int*, int,          \
                                      const TypeRef&);                                       \
  template TypeRef make_darray<Int>(const Distribution&, const Int*, const TypeRef&);
TUTTI_MPI_MAKERS(int)
TUTTI_MPI_MAKERS(MPI_Count)
#undef TUTTI_MPI_MAKERS

}  // namespace tutti::mpi
