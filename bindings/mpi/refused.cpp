// The procedures that Tutti does not have: each returns its class of error, with a sentence that
// names it, through the handler of the object that it was called on. The tools interface has no
// handlers; it returns its codes.
#include <cstring>
#include <type_traits>

#include "bindings/mpi/error.h"
#include "bindings/mpi/procedures.h"

namespace tutti::mpi {
namespace {

On on_of() { return {}; }
template <class First, class... Rest>
On on_of(First first, Rest... rest) {
  if constexpr (std::is_same_v<First, MPI_Comm> || std::is_same_v<First, MPI_Win> ||
                std::is_same_v<First, MPI_File>) {
    return On(first);
  } else if constexpr (std::is_same_v<First, MPI_File*>) {
    return On(MPI_FILE_NULL);
  } else {
    return on_of(rest...);
  }
}

const char* reason(const char* procedure, int error_class) {
  if (std::strncmp(procedure, "MPIX_", 5) == 0)
    return "no communicator of Tutti's can be used after the death of a rank";
  return error_class == MPI_ERR_UNSUPPORTED_OPERATION
             ? "Tutti does not read and write files of MPI, or convert data"
             : "Tutti does not start other jobs or connect with them";
}

template <class... Arguments>
int refuse(const char* procedure, int error_class, Arguments... arguments) {
  if (std::strncmp(procedure, "MPI_T_", 6) == 0) return error_class;
  On on = on_of(arguments...);
  if (std::strncmp(procedure, "MPI_File_", 9) == 0 && on.kind != On::Kind::file)
    on = On(MPI_FILE_NULL);
  return guarded(procedure, on, [&] { fail(error_class, "{}", reason(procedure, error_class)); });
}

}  // namespace

#define TUTTI_MPI_OFFERED(result, name, parameters, arguments)
#define TUTTI_REFUSE(name, error_class, ...) \
  return refuse(#name, error_class __VA_OPT__(, ) __VA_ARGS__)
#define TUTTI_UNPACK(...) __VA_ARGS__
#define TUTTI_MPI_REFUSED(error_class, name, parameters, arguments) \
  int name parameters { TUTTI_REFUSE_LIST(name, error_class, TUTTI_UNPACK arguments); }
#define TUTTI_REFUSE_LIST(name, error_class, ...) TUTTI_REFUSE(name, error_class, __VA_ARGS__)
#include "bindings/mpi/procedures.def"
#ifdef TUTTI_MPI_OPENMPI
#include "bindings/mpi/openmpi_procedures.def"
#endif

}  // namespace tutti::mpi
