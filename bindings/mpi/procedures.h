// The procedures of MPI, as functions of C++: what the exported ones (export_abi.cpp and its like)
// call, under the standard's names. They take the handles of abi.h, return error codes, and throw
// nothing.
//
// Inside of the library they call each other by these names: so a tool that puts its own MPI_Send
// in front of the exported one sees the program's calls alone.
#pragma once

#include "bindings/mpi/interface.h"

namespace tutti::mpi {

#define TUTTI_MPI_OFFERED(result, name, parameters, arguments) result name parameters;
#define TUTTI_MPI_REFUSED(error_class, name, parameters, arguments) int name parameters;
#include "bindings/mpi/procedures.def"
#ifdef TUTTI_MPI_OPENMPI
#include "bindings/mpi/openmpi_procedures.def"
#endif
#undef TUTTI_MPI_OFFERED
#undef TUTTI_MPI_REFUSED

}  // namespace tutti::mpi
