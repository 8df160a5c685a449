// The collectives that reduce, as structures of their arguments (movement.h). Those that Tutti has
// run as they are. The others gather the inputs, and combine them in the order of the ranks.
#pragma once

#include "bindings/mpi/op.h"
#include "bindings/mpi/work.h"

namespace tutti::mpi {

struct Operands {
  const void* in = nullptr;
  void* out = nullptr;
  MPI_Count count = 0;  // of a rank's block where there are blocks
  Held<Type> type;
  Held<Operator> op;
  MPI_Datatype handle = MPI_DATATYPE_NULL;  // of `type`: what a function of the program is told
};

struct Allreduce : Operands {
  Work operator()(Comm& comm) const;
};
struct Reduce : Operands {
  int root;
  Work operator()(Comm& comm) const;
};
struct ReduceScatterBlock : Operands {
  Work operator()(Comm& comm) const;
};
struct ReduceScatter : Operands {
  Numbers counts;
  Work operator()(Comm& comm) const;
};
struct Scan : Operands {
  bool exclusive;
  Work operator()(Comm& comm) const;
};

}  // namespace tutti::mpi
