// The constructors of data types as MPI has them, with checked arguments. Int is int, or MPI_Count
// in the procedures whose names end with _c; the contents say which.
#pragma once

#include "bindings/mpi/type.h"

namespace tutti::mpi {

/// What MPI_Type_get_contents will answer: integers of each width have their own lists.
struct Arguments : Contents {
  Arguments(int of, bool large_counts) {
    combiner = of;
    large = large_counts;
  }
  void add(int n) { integers.push_back(n); }
  void add(MPI_Count n) { counts.push_back(n); }
  template <class Int>
  void add(const Int* list, MPI_Count n) {
    for (MPI_Count i = 0; i < n; ++i) add(list[i]);
  }
};

template <class Int>
TypeRef make_contiguous(Int count, const TypeRef& old);
template <class Int>
TypeRef make_vector(Int count, Int length, Int stride, const TypeRef& old);
template <class Int>
TypeRef make_hvector(Int count, Int length, MPI_Aint stride, const TypeRef& old);
template <class Int>
TypeRef make_indexed(Int count, const Int* lengths, const Int* displacements, const TypeRef& old);
template <class Int>
TypeRef make_hindexed(Int count, const Int* lengths, const MPI_Aint* displacements,
                      const TypeRef& old);
template <class Int>
TypeRef make_indexed_block(Int count, Int length, const Int* displacements, const TypeRef& old);
template <class Int>
TypeRef make_hindexed_block(Int count, Int length, const MPI_Aint* displacements,
                            const TypeRef& old);
template <class Int>
TypeRef make_struct(Int count, const Int* lengths, const MPI_Aint* displacements,
                    std::vector<TypeRef> types);
template <class Int>
TypeRef make_resized(MPI_Aint lower_bound, MPI_Aint extent, const TypeRef& old);

/// The part of a `dimensions`-dimensional array that begins at `starts`.
template <class Int>
TypeRef make_subarray(int dimensions, const Int* sizes, const Int* subsizes, const Int* starts,
                      int order, const TypeRef& old);

/// How MPI_Type_create_darray spreads an array over a grid of processes.
struct Distribution {
  int size, rank, dimensions;
  const int* kinds;      // MPI_DISTRIBUTE_... of each dimension
  const int* arguments;  // the block size, or MPI_DISTRIBUTE_DFLT_DARG
  const int* grid;       // processes
  int order;
};
template <class Int>
TypeRef make_darray(const Distribution& distribution, const Int* sizes, const TypeRef& old);

}  // namespace tutti::mpi
