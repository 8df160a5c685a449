// mpi.h for programs in C and C++ that have no other: compile with -I of this folder and link
// libmpi_abi.so.1. A program that was compiled with another header of the standard's interface does
// not need it. (The tests are built for the other two libraries, too: with TUTTI_MPI_MPICH or
// TUTTI_MPI_OPENMPI, in C++.)
#ifndef TUTTI_BINDINGS_MPI_MPI_H
#define TUTTI_BINDINGS_MPI_MPI_H

#if defined(TUTTI_MPI_MPICH)
#include "mpich_abi.h"
#elif defined(TUTTI_MPI_OPENMPI)
#include "openmpi_abi.h"
#else
#include "abi.h"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define TUTTI_MPI_OFFERED(result, name, parameters, arguments) \
  result name parameters;                                      \
  result P##name parameters;
#define TUTTI_MPI_REFUSED(error_class, name, parameters, arguments) \
  int name parameters;                                              \
  int P##name parameters;
#include "procedures.def"
#undef TUTTI_MPI_OFFERED
#undef TUTTI_MPI_REFUSED

#ifdef __cplusplus
}
#endif

#endif
