// Sends and receives: from the arguments of a procedure to a request of the mail.
#pragma once

#include "bindings/mpi/request.h"

namespace tutti::mpi {

/// A message's part of the arguments.
struct Message {
  void* buffer = nullptr;
  MPI_Count count = 0;
  MPI_Datatype type = MPI_DATATYPE_NULL;
  int peer = MPI_PROC_NULL;
  int tag = 0;
};

/// Checks the arguments and fills the request, which is not started. `keeps`: it shares the
/// ownership of the type and the communicator, as the call returns before the end.
void fill_send(Request& send, const Message& message, MPI_Comm comm, SendMode mode, bool keeps);
void fill_receive(Request& receive, const Message& message, MPI_Comm comm, bool keeps);
/// Starts what was filled; it may be over at once.
void start_message(const RequestRef& request);

/// Copies a buffered send's data out of the program's buffer, into the room that the program has
/// attached. Throws Failure(MPI_ERR_BUFFER) where there is none.
void start_buffered(const RequestRef& send);

}  // namespace tutti::mpi
