// Reading, writing and combining the memory of a window's member (window.h).
#pragma once

#include "bindings/mpi/buffer.h"
#include "bindings/mpi/op.h"
#include "bindings/mpi/window.h"

namespace tutti::mpi {

/// Data in a member's memory: `count` elements of `type`, from `displacement` units on.
struct Place {
  int rank;
  MPI_Aint displacement;
  MPI_Count count;
  MPI_Datatype type;
};

// All of them throw Failure: MPI_ERR_RMA_SYNC outside of an epoch, MPI_ERR_RMA_RANGE for a place
// outside of the member's memory. They are over when they return.

void put(Win& win, const Buffer& from, const Place& to);
void get(Win& win, const Buffer& to, const Place& from);
/// to = to op from. `result`: gets what was there before, where it has a type.
void combine_at(Win& win, const Buffer& from, const Buffer& result, const Place& to, MPI_Op op);
/// Replaces one element if it is equal to `compare`; `result` gets what was there before.
void compare_and_swap(Win& win, const void* from, const void* compare, void* result,
                      const Place& to);

/// to = from op to, both packed: pairs of a value and an index.
void apply_to_pairs(const Operator& op, const std::byte* from, std::byte* to, std::size_t bytes,
                    const Type& pairs);

}  // namespace tutti::mpi
