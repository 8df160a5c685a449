// What libmpi_abi.so.1 exports: each procedure of the standard, and the same under its second name,
// PMPI_..., for tools that replace the first. The handles are those of the standard's interface, so
// nothing is converted.
#include "bindings/mpi/procedures.h"

#define TUTTI_MPI_EXPORT extern "C" __attribute__((visibility("default")))

#define TUTTI_MPI_OFFERED(result, name, parameters, arguments)                   \
  TUTTI_MPI_EXPORT result name parameters { return tutti::mpi::name arguments; } \
  TUTTI_MPI_EXPORT result P##name parameters __attribute__((alias(#name)));
#define TUTTI_MPI_REFUSED(error_class, name, parameters, arguments) \
  TUTTI_MPI_OFFERED(int, name, parameters, arguments)

#include "bindings/mpi/procedures.def"
