// What the libraries of MPI export: each procedure of the standard, and the same under its second
// name, PMPI_..., for tools that replace the first. The handles are those of the library's binary
// interface, so nothing is converted.
#include "bindings/mpi/procedures.h"

#define TUTTI_MPI_EXPORT extern "C" __attribute__((visibility("default")))

#define TUTTI_MPI_OFFERED(result, name, parameters, arguments)                   \
  TUTTI_MPI_EXPORT result name parameters { return tutti::mpi::name arguments; } \
  TUTTI_MPI_EXPORT result P##name parameters __attribute__((alias(#name)));
#define TUTTI_MPI_REFUSED(error_class, name, parameters, arguments) \
  TUTTI_MPI_OFFERED(int, name, parameters, arguments)

#include "bindings/mpi/procedures.def"
#ifdef TUTTI_MPI_OPENMPI
#include "bindings/mpi/openmpi_procedures.def"
#endif

#if defined(TUTTI_MPI_MPICH)

// What MPICH's mpi.h declares besides, and programs so need: a copy function that is one, and
// arguments with a meaning of their own that are variables.

TUTTI_MPI_EXPORT int MPIR_Dup_fn(MPI_Comm, int, void*, void* value, void* place, int* copied) {
  *static_cast<void**>(place) = value;
  *copied = 1;
  return MPI_SUCCESS;
}

namespace {
int* const kUnweighted = MPI_UNWEIGHTED;
int* const kWeightsEmpty = MPI_WEIGHTS_EMPTY;
}  // namespace
#undef MPI_UNWEIGHTED
#undef MPI_WEIGHTS_EMPTY

extern "C" {
#define TUTTI_MPI_VARIABLE __attribute__((visibility("default"))) extern
TUTTI_MPI_VARIABLE int* const MPI_UNWEIGHTED;
TUTTI_MPI_VARIABLE int* const MPI_WEIGHTS_EMPTY;
TUTTI_MPI_VARIABLE MPI_Fint* MPI_F_STATUS_IGNORE;
TUTTI_MPI_VARIABLE MPI_Fint* MPI_F_STATUSES_IGNORE;
TUTTI_MPI_VARIABLE const MPI_T_pvar_handle MPI_T_PVAR_ALL_HANDLES;

int* const MPI_UNWEIGHTED = kUnweighted;
int* const MPI_WEIGHTS_EMPTY = kWeightsEmpty;
MPI_Fint* MPI_F_STATUS_IGNORE = nullptr;
MPI_Fint* MPI_F_STATUSES_IGNORE = nullptr;
const MPI_T_pvar_handle MPI_T_PVAR_ALL_HANDLES = nullptr;
}

#elif defined(TUTTI_MPI_OPENMPI)

// What Open MPI's mpi.h declares besides: the predefined objects, and functions of attributes.

extern "C" {
#define TUTTI_MPI_OBJECT(handle, place, name) \
  OpenMpiObject name{tutti::mpi::Predefined<handle>::kind, place};
#include "bindings/mpi/openmpi_objects.def"
#undef TUTTI_MPI_OBJECT

#define TUTTI_MPI_VARIABLE __attribute__((visibility("default"))) extern
TUTTI_MPI_VARIABLE MPI_Fint* MPI_F_STATUS_IGNORE;
TUTTI_MPI_VARIABLE MPI_Fint* MPI_F_STATUSES_IGNORE;
MPI_Fint* MPI_F_STATUS_IGNORE = nullptr;
MPI_Fint* MPI_F_STATUSES_IGNORE = nullptr;

#define TUTTI_MPI_ATTRIBUTES(KIND, Handle)                                                \
  int OMPI_C_MPI_##KIND##NULL_COPY_FN(Handle, int, void*, void*, void*, int* copied) {    \
    *copied = 0;                                                                          \
    return MPI_SUCCESS;                                                                   \
  }                                                                                       \
  int OMPI_C_MPI_##KIND##DUP_FN(Handle, int, void*, void* value, void* to, int* copied) { \
    *static_cast<void**>(to) = value;                                                     \
    *copied = 1;                                                                          \
    return MPI_SUCCESS;                                                                   \
  }                                                                                       \
  int OMPI_C_MPI_##KIND##NULL_DELETE_FN(Handle, int, void*, void*) { return MPI_SUCCESS; }
TUTTI_MPI_ATTRIBUTES(, MPI_Comm)
TUTTI_MPI_ATTRIBUTES(COMM_, MPI_Comm)
TUTTI_MPI_ATTRIBUTES(TYPE_, MPI_Datatype)
TUTTI_MPI_ATTRIBUTES(WIN_, MPI_Win)
}

#endif
