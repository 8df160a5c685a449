// The collectives that move data, as structures of their arguments; called with a communicator,
// each gives the work of one call.
#pragma once

#include "bindings/mpi/work.h"

namespace tutti::mpi {

/// Blocks of equal size.
struct Block {
  const void* buffer = nullptr;
  MPI_Count count = 0;
  Held<Type> type;
};
/// Blocks with counts and places of their own, of one type.
struct Blocks {
  const void* buffer = nullptr;
  Numbers counts, places;
  Held<Type> type;
};
/// The same with a type for each block, and places in bytes.
struct TypedBlocks {
  const void* buffer = nullptr;
  Numbers counts, places;
  std::vector<Held<Type>> types;
};

struct Barrier {
  Work operator()(Comm& comm) const;
};
struct Bcast {
  Block data;
  int root;
  Work operator()(Comm& comm) const;
};
struct Gather {
  Block in, out;
  int root;
  Work operator()(Comm& comm) const;
};
struct Gatherv {
  Block in;
  Blocks out;
  int root;
  Work operator()(Comm& comm) const;
};
struct Scatter {
  Block in, out;
  int root;
  Work operator()(Comm& comm) const;
};
struct Scatterv {
  Blocks in;
  Block out;
  int root;
  Work operator()(Comm& comm) const;
};
struct Allgather {
  Block in, out;
  Work operator()(Comm& comm) const;
};
struct Allgatherv {
  Block in;
  Blocks out;
  Work operator()(Comm& comm) const;
};
struct Alltoall {
  Block in, out;
  Work operator()(Comm& comm) const;
};
struct Alltoallv {
  Blocks in, out;
  Work operator()(Comm& comm) const;
};
struct Alltoallw {
  TypedBlocks in, out;
  Work operator()(Comm& comm) const;
};

/// Block `i` of several.
Buffer buffer_of(const Block& block);
Buffer buffer_of(const Block& block, int i);
Buffer buffer_of(const Blocks& blocks, int i);
Buffer buffer_of(const TypedBlocks& blocks, int i);

}  // namespace tutti::mpi
