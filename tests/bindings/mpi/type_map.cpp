#include "tests/bindings/mpi/type_map.h"

#include <algorithm>

#include "bindings/mpi/type_make.h"

namespace tutti::mpi::test {
namespace {

MPI_Aint width(Element element) { return static_cast<MPI_Aint>(properties(element).size); }

int number(std::mt19937& random, int from, int to) {
  return std::uniform_int_distribution<int>(from, to)(random);
}

std::vector<int> numbers(std::mt19937& random, int n, int from, int to) {
  std::vector<int> list;
  for (int i = 0; i < n; ++i) list.push_back(number(random, from, to));
  return list;
}

std::vector<MPI_Count> wide(const std::vector<int>& list) { return {list.begin(), list.end()}; }

TypeMap copies(const TypeMap& one, int n) {
  TypeMap all;
  for (int i = 0; i < n; ++i) all.append(one, i * one.extent());
  return all;
}

Both basic(std::mt19937& random) {
  constexpr MPI_Datatype kNone{};
  const MPI_Datatype handles[] = {
      MPI_CHAR,        MPI_SHORT, MPI_INT,   MPI_DOUBLE,     MPI_LONG,      MPI_C_DOUBLE_COMPLEX,
      MPI_LONG_DOUBLE, MPI_BYTE,  MPI_FLOAT, MPI_DOUBLE_INT, MPI_SHORT_INT, kNone};
  const MPI_Datatype handle = handles[number(random, 0, 10)];
  const TypeRef type = shared_type(handle);
  TypeMap map;
  if (type->pair()) {
    map.entries = {{type->pair()->value, 0},
                   {type->pair()->index, static_cast<MPI_Aint>(type->pair()->index_offset)}};
  } else {
    map.entries = {{*type->element(), 0}};
  }
  return {type, map};
}

Both vector_of(std::mt19937& random, const Both& old) {
  const int count = number(random, 0, 4), length = number(random, 0, 3),
            stride = number(random, -3, 5);
  TypeMap map;
  for (int i = 0; i < count; ++i)
    map.append(copies(old.map, length), i * stride * old.map.extent());
  if (number(random, 0, 1) == 0) return {make_vector(count, length, stride, old.type), map};
  return {make_vector<MPI_Count>(count, length, stride, old.type), map};
}

Both hvector_of(std::mt19937& random, const Both& old) {
  const int count = number(random, 0, 4), length = number(random, 0, 3);
  const MPI_Aint stride = number(random, -50, 90);
  TypeMap map;
  for (int i = 0; i < count; ++i) map.append(copies(old.map, length), i * stride);
  return {make_hvector(count, length, stride, old.type), map};
}

Both indexed_of(std::mt19937& random, const Both& old) {
  const int count = number(random, 0, 5);
  const auto lengths = numbers(random, count, 0, 3), places = numbers(random, count, -4, 12);
  TypeMap map;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    map.append(copies(old.map, lengths[i]), places[i] * old.map.extent());
  }
  if (number(random, 0, 1) == 0)
    return {make_indexed(count, lengths.data(), places.data(), old.type), map};
  return {make_indexed<MPI_Count>(count, wide(lengths).data(), wide(places).data(), old.type), map};
}

Both hindexed_block_of(std::mt19937& random, const Both& old) {
  const int count = number(random, 0, 5), length = number(random, 0, 3);
  const auto places = wide(numbers(random, count, -30, 120));
  TypeMap map;
  for (const MPI_Count place : places) map.append(copies(old.map, length), place);
  return {make_hindexed_block(count, length, places.data(), old.type), map};
}

Both struct_of(std::mt19937& random, const Both& old) {
  const int count = number(random, 1, 4);
  const auto lengths = numbers(random, count, 0, 3);
  const auto places = wide(numbers(random, count, -20, 150));
  std::vector<TypeRef> types;
  TypeMap map;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const Both part = number(random, 0, 1) == 0 ? old : basic(random);
    types.push_back(part.type);
    map.append(copies(part.map, lengths[i]), places[i]);
  }
  return {make_struct(count, lengths.data(), places.data(), types), map};
}

Both resized_of(std::mt19937& random, const Both& old) {
  const MPI_Aint lower = number(random, -20, 20), extent = number(random, 0, 100);
  TypeMap map = old.map;
  map.lower_marks = {lower};
  map.upper_marks = {lower + extent};
  return {make_resized<int>(lower, extent, old.type), map};
}

/// The elements of an array that `takes` wants, in the order of memory.
template <class Takes>
TypeMap array_map(const std::vector<int>& sizes, int order, const TypeMap& old,
                  const Takes& takes) {
  const int dimensions = static_cast<int>(sizes.size());
  int all = 1;
  for (const int size : sizes) all *= size;
  TypeMap map;
  for (int i = 0; i < all; ++i) {
    std::vector<int> place(sizes.size());
    int rest = i;
    for (int k = 0; k < dimensions; ++k) {
      const auto d = static_cast<std::size_t>(order == MPI_ORDER_C ? dimensions - 1 - k : k);
      place[d] = rest % sizes[d];
      rest /= sizes[d];
    }
    if (takes(place)) map.append(old, i * old.extent());
  }
  map.lower_marks = {0};
  map.upper_marks = {all * old.extent()};
  return map;
}

Both subarray_of(std::mt19937& random, const Both& old) {
  const int dimensions = number(random, 1, 3);
  const int order = number(random, 0, 1) == 0 ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
  const auto sizes = numbers(random, dimensions, 1, 4);
  std::vector<int> parts, starts;
  for (const int size : sizes) {
    parts.push_back(number(random, 1, size));
    starts.push_back(number(random, 0, size - parts.back()));
  }
  const TypeMap map = array_map(sizes, order, old.map, [&](const std::vector<int>& place) {
    for (std::size_t d = 0; d < place.size(); ++d) {
      if (place[d] < starts[d] || place[d] >= starts[d] + parts[d]) return false;
    }
    return true;
  });
  return {make_subarray(dimensions, sizes.data(), parts.data(), starts.data(), order, old.type),
          map};
}

Both darray_of(std::mt19937& random, const Both& old) {
  const int dimensions = number(random, 1, 3);
  const int order = number(random, 0, 1) == 0 ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
  const auto sizes = numbers(random, dimensions, 1, 6);
  std::vector<int> kinds, arguments, grid, blocks;
  int processes = 1;
  for (const int size : sizes) {
    const int kind = MPI_DISTRIBUTE_NONE + number(random, 0, 2);
    const int n = kind == MPI_DISTRIBUTE_NONE ? 1 : number(random, 1, 3);
    const bool given = kind != MPI_DISTRIBUTE_NONE && number(random, 0, 1) == 1;
    const int least = (size + n - 1) / n;
    const int block = kind == MPI_DISTRIBUTE_BLOCK ? least + (given ? number(random, 0, 1) : 0)
                                                   : (given ? number(random, 1, 3) : 1);
    kinds.push_back(kind);
    grid.push_back(n);
    arguments.push_back(given ? block : MPI_DISTRIBUTE_DFLT_DARG);
    blocks.push_back(kind == MPI_DISTRIBUTE_NONE ? size : block);
    processes *= n;
  }
  const int rank = number(random, 0, processes - 1);
  std::vector<int> own(sizes.size());
  int rest = rank;
  for (std::size_t d = sizes.size(); d-- > 0;) {
    own[d] = rest % grid[d];
    rest /= grid[d];
  }
  const TypeMap map = array_map(sizes, order, old.map, [&](const std::vector<int>& place) {
    for (std::size_t d = 0; d < place.size(); ++d) {
      if (place[d] / blocks[d] % grid[d] != own[d]) return false;
    }
    return true;
  });
  const Distribution distribution{processes,        rank,        dimensions, kinds.data(),
                                  arguments.data(), grid.data(), order};
  return {make_darray(distribution, sizes.data(), old.type), map};
}

}  // namespace

void TypeMap::append(const TypeMap& other, MPI_Aint displacement) {
  for (const Entry& entry : other.entries)
    entries.push_back({entry.element, entry.at + displacement});
  for (const MPI_Aint mark : other.lower_marks) lower_marks.push_back(mark + displacement);
  for (const MPI_Aint mark : other.upper_marks) upper_marks.push_back(mark + displacement);
}

MPI_Aint TypeMap::true_lower() const {
  MPI_Aint least = entries.empty() ? 0 : entries.front().at;
  for (const Entry& entry : entries) least = std::min(least, entry.at);
  return least;
}

MPI_Aint TypeMap::true_upper() const {
  MPI_Aint most = entries.empty() ? 0 : entries.front().at;
  for (const Entry& entry : entries) most = std::max(most, entry.at + width(entry.element));
  return most;
}

MPI_Aint TypeMap::lower() const {
  return lower_marks.empty() ? true_lower()
                             : *std::min_element(lower_marks.begin(), lower_marks.end());
}

MPI_Aint TypeMap::upper() const {
  if (!upper_marks.empty()) return *std::max_element(upper_marks.begin(), upper_marks.end());
  MPI_Aint alignment = 1;
  for (const Entry& entry : entries) {
    alignment = std::max(alignment, static_cast<MPI_Aint>(properties(entry.element).alignment));
  }
  MPI_Aint upper = true_upper();
  while ((upper - true_lower()) % alignment != 0) ++upper;
  return upper;
}

MPI_Count TypeMap::size() const {
  MPI_Count sum = 0;
  for (const Entry& entry : entries) sum += width(entry.element);
  return sum;
}

std::vector<MPI_Aint> TypeMap::bytes(MPI_Count count) const {
  std::vector<MPI_Aint> all;
  for (MPI_Count i = 0; i < count; ++i) {
    for (const Entry& entry : entries) {
      for (MPI_Aint b = 0; b < width(entry.element); ++b)
        all.push_back(i * extent() + entry.at + b);
    }
  }
  return all;
}

Both random_type(std::mt19937& random, int depth) {
  if (depth == 0) return basic(random);
  const Both old = random_type(random, depth - 1);
  if (old.map.entries.size() > 60) return old;
  switch (number(random, 0, 7)) {
    case 0:
      return vector_of(random, old);
    case 1:
      return hvector_of(random, old);
    case 2:
      return indexed_of(random, old);
    case 3:
      return hindexed_block_of(random, old);
    case 4:
      return struct_of(random, old);
    case 5:
      return resized_of(random, old);
    case 6:
      return subarray_of(random, old);
    default:
      return darray_of(random, old);
  }
}

}  // namespace tutti::mpi::test
