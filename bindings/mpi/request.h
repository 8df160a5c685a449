// A request: a send, a receive, or a collective that goes on while the program does something else;
// or one that the program completes itself.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bindings/mpi/buffer.h"
#include "bindings/mpi/communicator.h"
#include "bindings/mpi/handle.h"
#include "bindings/mpi/interface.h"
#include "tutti.h"

namespace tutti::mpi {

/// `both`: a send and a receive, or other messages that are one request; `task`: what another
/// thread does.
enum class RequestKind : std::uint8_t { send, receive, collective, both, task, general };
enum class SendMode : std::uint8_t { standard, synchronous, buffered, ready };

struct Partitions;  // partitioned.cpp

/// What a receive says of its message.
struct Outcome {
  int source = MPI_ANY_SOURCE;
  int tag = MPI_ANY_TAG;
  std::uint64_t bytes = 0;
  bool cancelled = false;
  int error_class = MPI_SUCCESS;
  std::string sentence;  // of an error
};

/// The procedures of a generalised request (MPI_Grequest_start).
struct General {
  MPI_Grequest_query_function* query = nullptr;
  MPI_Grequest_free_function* free = nullptr;
  MPI_Grequest_cancel_function* cancel = nullptr;
  void* state = nullptr;
};

struct Request {
  explicit Request(RequestKind kind) : what(kind) {}

  RequestKind what;
  SendMode mode = SendMode::standard;
  bool persistent = false;
  bool active = false;            // started, and not given to the program as complete
  std::atomic<bool> over{false};  // complete: `outcome` is constant from then on
  Outcome outcome;
  CommRef comm;
  const char* procedure = "";

  // Messages:
  std::uint64_t context = 0;
  int peer = MPI_PROC_NULL;  // rank in the communicator, or MPI_ANY_SOURCE
  int job_peer = -1;         // the peer's number in the job; of a receive: once parts are to come
  int own = 0;               // this rank in the communicator
  int tag = 0;
  Buffer buffer;
  std::vector<std::byte> packed;  // data of a buffer with holes, on its way
  bool keeps_packed = false;      // `packed` has the data of a send already
  std::byte* data = nullptr;  // of a send: there, or in the buffer; of a receive: null for holes
  std::size_t bytes = 0;      // of the send; of the receive: room
  // Of a transfer whose data does not come with the envelope:
  std::uint64_t number = 0, receiver = 0;
  std::byte* transfer = nullptr;  // where it lands
  std::size_t wanted = 0, moved = 0;
  std::function<void()> then;       // of a message: done before it is over, with the mail's lock
  std::shared_ptr<Request> itself;  // as long as the mail needs it and nobody else may have it

  // Collectives, and what is made of several requests:
  Communicator tutti;  // of a persistent one of its own; none: the communicator's
  Future future;
  std::vector<std::shared_ptr<Request>> parts;
  std::atomic<std::size_t> missing{0};     // parts that are not started yet
  std::shared_ptr<Partitions> partitions;  // of a partitioned one
  std::function<void(Request&)> begin;     // of a persistent one: starts it
  std::function<void()> finish;            // what is left to do when all that is ready

  General general;

  void fail(int error_class, std::string sentence) {
    outcome.error_class = error_class;
    outcome.sentence = std::move(sentence);
  }
};
using RequestRef = std::shared_ptr<Request>;

Handles<Request, MPI_Request>& requests();
/// Throws Failure(MPI_ERR_REQUEST) for a freed handle; null for MPI_REQUEST_NULL.
RequestRef shared_request(MPI_Request request);

/// Whether it is complete but for what settle() does; drives nothing.
bool is_ready(const Request& request);
/// Of one that is ready: does what is left to do here. Throws a collective's error.
void settle(Request& request);
/// Drives the mail until it is ready.
void wait_until_ready(Request& request, const char* procedure);
/// Writes the status of a settled request, and gives up its handle, or makes a persistent one
/// inactive. The code of its error, if it has failed.
int take_completed(MPI_Request& handle, Request& request, MPI_Status* status);

/// A request that is complete.
MPI_Request finished_request();
/// Whose error handler hears of errors of these requests.
On object_of(const MPI_Request* handles, int count);

}  // namespace tutti::mpi
