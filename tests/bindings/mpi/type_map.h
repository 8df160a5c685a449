// The slow and obvious meaning of data types, as a reference for tests: a type is the list of its
// elements with their displacements, and constructors write such lists out.
#pragma once

#include <memory>
#include <random>
#include <vector>

#include "bindings/mpi/type.h"

namespace tutti::mpi::test {

struct TypeMap {
  struct Entry {
    Element element;
    MPI_Aint at;
  };
  std::vector<Entry> entries;
  // The bounds that were given with MPI_Type_create_resized, here or in a part.
  std::vector<MPI_Aint> lower_marks, upper_marks;

  MPI_Aint lower() const;
  MPI_Aint upper() const;
  MPI_Aint extent() const { return upper() - lower(); }
  MPI_Aint true_lower() const;
  MPI_Aint true_upper() const;
  MPI_Count size() const;
  /// The displacement of each byte of `count` elements, in the order in which they are sent.
  std::vector<MPI_Aint> bytes(MPI_Count count) const;

  /// Appends the map of a type, displaced.
  void append(const TypeMap& other, MPI_Aint displacement);
};

/// A type, made by the library and by the reference.
struct Both {
  TypeRef type;
  TypeMap map;
};

/// A random type, nested up to `depth` times, of at most some hundred elements.
Both random_type(std::mt19937& random, int depth);

}  // namespace tutti::mpi::test
