// How requests begin, and what becomes of those that the program lets go.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bindings/mpi/request.h"

namespace tutti::mpi {

/// Makes a request active.
void begin_anew(Request& request);
/// Starts a persistent request, which must not be active.
void start_again(const RequestRef& request);
/// The program has freed an active request: it goes on to its end by itself.
void let_go(const RequestRef& request);
/// A message of the library's own, which is not started: `bytes` in its `packed`, in a context that
/// no other message has. The caller says from whom to whom.
RequestRef own_message(RequestKind kind, const char* procedure, std::uint64_t context, int tag,
                       std::size_t bytes);
/// The status of a settled request, which stays as it is.
void show_status(const Request& request, MPI_Status* status);

}  // namespace tutti::mpi
