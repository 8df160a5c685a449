#include "bindings/mpi/request.h"

#include <algorithm>

#include "bindings/mpi/start.h"
#include "bindings/mpi/status_of.h"
#include "bindings/mpi/world.h"

namespace tutti::mpi {

Handles<Request, MPI_Request>& requests() {
  static auto* all = new Handles<Request, MPI_Request>;
  return *all;
}

RequestRef shared_request(MPI_Request request) {
  if (request == MPI_REQUEST_NULL) return nullptr;
  RequestRef found = requests().share(request);
  if (!found) fail(MPI_ERR_REQUEST, "the request is none, or has been completed or freed");
  return found;
}

RequestRef own_message(RequestKind kind, const char* procedure, std::uint64_t context, int tag,
                       std::size_t bytes) {
  static const std::shared_ptr<Type> byte = shared_type(MPI_BYTE);
  auto message = std::make_shared<Request>(kind);
  message->procedure = procedure;
  message->context = context;
  message->tag = tag;
  message->keeps_packed = true;
  message->packed.resize(bytes);
  message->buffer = {message->packed.data(), static_cast<MPI_Count>(bytes), Held<Type>(byte)};
  return message;
}

bool is_ready(const Request& request) {
  if (!request.active) return true;
  switch (request.what) {
    case RequestKind::collective:
      return request.over.load(std::memory_order_acquire) || !request.future.valid() ||
             request.future.ready();
    case RequestKind::both:
      return request.missing.load(std::memory_order_acquire) == 0 &&
             std::ranges::all_of(request.parts, [](const RequestRef& r) { return is_ready(*r); });
    default:
      return request.over.load(std::memory_order_acquire);
  }
}

void settle(Request& request) {
  if (request.over.load(std::memory_order_acquire)) return;
  if (request.what == RequestKind::both) {
    // The receive comes last; an error of either one is the call's.
    for (const RequestRef& part : request.parts) {
      if (request.outcome.error_class == MPI_SUCCESS) request.outcome = part->outcome;
    }
    if (request.finish) request.finish();
  } else if (request.what == RequestKind::collective) {
    if (request.future.valid()) {
      const std::optional<Error> error = request.future.error();
      request.future = {};
      if (error) throw Error(*error);
    }
    if (request.finish) request.finish();
  }
  request.over.store(true, std::memory_order_release);
}

void wait_until_ready(Request& request, const char* procedure) {
  if (is_ready(request)) return;
  if (!request.future.valid()) {
    return world().mail().wait(procedure, [&] { return is_ready(request); });
  }
  try {
    wait_for(request.future, procedure);
  } catch (const Error&) {
    if (!request.future.ready()) throw;  // else it is the call's: settle() says it
  }
}

void show_status(const Request& request, MPI_Status* status) {
  const Outcome& o = request.outcome;
  if (request.what == RequestKind::receive || request.what == RequestKind::both) {
    return write_status(status, o.source, o.tag, static_cast<MPI_Count>(o.bytes), o.cancelled);
  }
  write_status(status, MPI_ANY_SOURCE, MPI_ANY_TAG, 0, o.cancelled);
}

int take_completed(MPI_Request& handle, Request& request, MPI_Status* status) {
  int code = MPI_SUCCESS;
  if (request.what == RequestKind::general) {
    MPI_Status own{};
    write_empty_status(&own);
    const General& g = request.general;
    if (g.query != nullptr) code = g.query(g.state, &own);
    if (status != MPI_STATUS_IGNORE) {
      const int error = status->MPI_ERROR;
      *status = own;
      status->MPI_ERROR = error;
    }
    if (g.free != nullptr) {
      const int freed = g.free(g.state);
      if (code == MPI_SUCCESS) code = freed;
    }
  } else {
    show_status(request, status);
    if (request.outcome.error_class != MPI_SUCCESS) {
      code = new_error_code(request.outcome.error_class,
                            std::string(request.procedure) + ": " + request.outcome.sentence);
    }
  }
  if (request.persistent) {
    request.active = false;
  } else {
    requests().remove(handle);
    handle = MPI_REQUEST_NULL;
  }
  return code;
}

MPI_Request finished_request() {
  auto request = std::make_shared<Request>(RequestKind::collective);
  request->active = true;
  request->over = true;
  return requests().add(std::move(request));
}

On object_of(const MPI_Request* handles, int count) {
  for (int i = 0; i < count; ++i) {
    const Request* const r = requests().find(handles[i]);
    if (r != nullptr && r->comm && r->comm->handle != MPI_COMM_NULL) return r->comm->handle;
  }
  return {};
}

}  // namespace tutti::mpi
