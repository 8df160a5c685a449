// MPI_Wait, MPI_Test and their relatives for many requests; MPI_Start, MPI_Cancel,
// MPI_Request_free; requests that the program completes itself.
#include <vector>

#include "bindings/mpi/procedures.h"
#include "bindings/mpi/request.h"
#include "bindings/mpi/start.h"
#include "bindings/mpi/status_of.h"
#include "bindings/mpi/world.h"

namespace tutti::mpi {
namespace {

/// An error of a request that has its code already.
int raise_of(On on, int code) { return code == MPI_SUCCESS ? code : raise_error(on, code); }

void drive_once() {
  World* const w = world_or_null();
  if (w == nullptr) return;
  const Mail::Lock lock(w->mail());
  w->mail().progress();
}

/// The requests of a call, without owning them: the program must not free them meanwhile.
struct Some {
  Some(int count, MPI_Request* its_handles) : handles(its_handles) {
    if (count < 0)
      fail(MPI_ERR_ARG, "the number of requests is {}, but has to be 0 or more", count);
    for (int i = 0; i < count; ++i) all.push_back(shared_request(its_handles[i]));
  }
  bool is_active(std::size_t i) const { return all[i] && all[i]->active; }
  bool any_active() const {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (is_active(i)) return true;
    }
    return false;
  }
  /// The first active one that is ready; -1: none.
  int first_ready() const {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (is_active(i) && is_ready(*all[i])) return static_cast<int>(i);
    }
    return -1;
  }
  bool all_ready() const {
    for (const RequestRef& r : all) {
      if (r && !is_ready(*r)) return false;
    }
    return true;
  }
  void ring_when_ready() {
    Mail& mail = world().mail();
    for (const RequestRef& r : all) {
      if (r && r->active && r->future.valid()) r->future.on_ready([&mail] { mail.ring(); });
    }
  }
  /// Completes request i. Its code.
  int take(std::size_t i, MPI_Status* status) {
    settle(*all[i]);
    return take_completed(handles[i], *all[i], status);
  }
  /// Completes those that are active and ready; of several, errors go into the statuses. How many.
  int take_all(MPI_Status* statuses, int& failed) {
    int taken = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      MPI_Status* const status = statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : statuses + i;
      if (!is_active(i)) {
        write_empty_status(status);
        continue;
      }
      const int code = take(i, status);
      if (status != MPI_STATUS_IGNORE) status->MPI_ERROR = code;
      if (failed == MPI_SUCCESS) failed = code;
      ++taken;
    }
    return taken;
  }
  int take_ready(int indices[], MPI_Status* statuses, int& failed) {
    int taken = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (!is_active(i) || !is_ready(*all[i])) continue;
      MPI_Status* const status =
          statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : statuses + taken;
      const int code = take(i, status);
      if (status != MPI_STATUS_IGNORE) status->MPI_ERROR = code;
      if (failed == MPI_SUCCESS) failed = code;
      indices[taken++] = static_cast<int>(i);
    }
    return taken;
  }

  MPI_Request* handles;
  std::vector<RequestRef> all;
};

/// Runs the body of a procedure on several requests, which says whether one of them has failed.
template <class Body>
int guarded_on_some(const char* procedure, On on, Body&& body) {
  int failed = MPI_SUCCESS;
  return guarded(procedure, on, [&] {
    body(failed);
    if (failed == MPI_SUCCESS) return;
    fail(MPI_ERR_IN_STATUS, "a request has failed (its status has the error): {}",
         error_text(failed));
  });
}

}  // namespace

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  int code = MPI_SUCCESS;
  const On on = object_of(request, 1);
  const int own = guarded("MPI_Wait", on, [&] {
    const RequestRef r = shared_request(*request);
    if (!r || !r->active) return write_empty_status(status);
    wait_until_ready(*r, "MPI_Wait");
    settle(*r);
    code = take_completed(*request, *r, status);
  });
  return own != MPI_SUCCESS ? own : raise_of(on, code);
}

int MPI_Test(MPI_Request* request, int* flag, MPI_Status* status) {
  int code = MPI_SUCCESS;
  const On on = object_of(request, 1);
  const int own = guarded("MPI_Test", on, [&] {
    *flag = 0;
    const RequestRef r = shared_request(*request);
    if (!r || !r->active) {
      *flag = 1;
      return write_empty_status(status);
    }
    if (!is_ready(*r)) drive_once();
    if (!is_ready(*r)) return;
    *flag = 1;
    settle(*r);
    code = take_completed(*request, *r, status);
  });
  return own != MPI_SUCCESS ? own : raise_of(on, code);
}

int MPI_Waitall(int count, MPI_Request array_of_requests[], MPI_Status* array_of_statuses) {
  return guarded_on_some("MPI_Waitall", object_of(array_of_requests, count), [&](int& failed) {
    Some some(count, array_of_requests);
    for (const RequestRef& r : some.all) {
      if (r) wait_until_ready(*r, "MPI_Waitall");
    }
    some.take_all(array_of_statuses, failed);
  });
}

int MPI_Testall(int count, MPI_Request array_of_requests[], int* flag,
                MPI_Status* array_of_statuses) {
  return guarded_on_some("MPI_Testall", object_of(array_of_requests, count), [&](int& failed) {
    *flag = 0;
    Some some(count, array_of_requests);
    if (!some.all_ready()) drive_once();
    if (!some.all_ready()) return;
    *flag = 1;
    some.take_all(array_of_statuses, failed);
  });
}

int MPI_Waitany(int count, MPI_Request array_of_requests[], int* index, MPI_Status* status) {
  int code = MPI_SUCCESS;
  const On on = object_of(array_of_requests, count);
  const int own = guarded("MPI_Waitany", on, [&] {
    *index = MPI_UNDEFINED;
    Some some(count, array_of_requests);
    if (!some.any_active()) return write_empty_status(status);
    if (some.first_ready() < 0) {
      some.ring_when_ready();
      world().mail().wait("MPI_Waitany", [&] { return some.first_ready() >= 0; });
    }
    *index = some.first_ready();
    code = some.take(static_cast<std::size_t>(*index), status);
  });
  return own != MPI_SUCCESS ? own : raise_of(on, code);
}

int MPI_Testany(int count, MPI_Request array_of_requests[], int* index, int* flag,
                MPI_Status* status) {
  int code = MPI_SUCCESS;
  const On on = object_of(array_of_requests, count);
  const int own = guarded("MPI_Testany", on, [&] {
    *index = MPI_UNDEFINED;
    *flag = 0;
    Some some(count, array_of_requests);
    if (!some.any_active()) {
      *flag = 1;
      return write_empty_status(status);
    }
    if (some.first_ready() < 0) drive_once();
    const int ready = some.first_ready();
    if (ready < 0) return;
    *flag = 1;
    *index = ready;
    code = some.take(static_cast<std::size_t>(ready), status);
  });
  return own != MPI_SUCCESS ? own : raise_of(on, code);
}

int MPI_Waitsome(int incount, MPI_Request array_of_requests[], int* outcount,
                 int array_of_indices[], MPI_Status* array_of_statuses) {
  return guarded_on_some("MPI_Waitsome", object_of(array_of_requests, incount), [&](int& failed) {
    *outcount = MPI_UNDEFINED;
    Some some(incount, array_of_requests);
    if (!some.any_active()) return;
    if (some.first_ready() < 0) {
      some.ring_when_ready();
      world().mail().wait("MPI_Waitsome", [&] { return some.first_ready() >= 0; });
    }
    *outcount = some.take_ready(array_of_indices, array_of_statuses, failed);
  });
}

int MPI_Testsome(int incount, MPI_Request array_of_requests[], int* outcount,
                 int array_of_indices[], MPI_Status* array_of_statuses) {
  return guarded_on_some("MPI_Testsome", object_of(array_of_requests, incount), [&](int& failed) {
    *outcount = MPI_UNDEFINED;
    Some some(incount, array_of_requests);
    if (!some.any_active()) return;
    if (some.first_ready() < 0) drive_once();
    *outcount = some.take_ready(array_of_indices, array_of_statuses, failed);
  });
}

int MPI_Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
  return guarded("MPI_Request_get_status", object_of(&request, 1), [&] {
    *flag = 0;
    const RequestRef r = shared_request(request);
    if (!r || !r->active) {
      *flag = 1;
      return write_empty_status(status);
    }
    if (!is_ready(*r)) drive_once();
    if (!is_ready(*r)) return;
    *flag = 1;
    settle(*r);
    show_status(*r, status);
  });
}
int MPI_Request_get_status_all(int count, const MPI_Request array_of_requests[], int* flag,
                               MPI_Status* array_of_statuses) {
  return guarded("MPI_Request_get_status_all", object_of(array_of_requests, count), [&] {
    *flag = 0;
    Some some(count, const_cast<MPI_Request*>(array_of_requests));
    if (!some.all_ready()) drive_once();
    if (!some.all_ready()) return;
    *flag = 1;
    for (std::size_t i = 0; i < some.all.size(); ++i) {
      MPI_Status* const status =
          array_of_statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : array_of_statuses + i;
      if (!some.is_active(i)) {
        write_empty_status(status);
        continue;
      }
      settle(*some.all[i]);
      show_status(*some.all[i], status);
    }
  });
}
int MPI_Request_get_status_any(int count, const MPI_Request array_of_requests[], int* index,
                               int* flag, MPI_Status* status) {
  return guarded("MPI_Request_get_status_any", object_of(array_of_requests, count), [&] {
    *flag = 0;
    *index = MPI_UNDEFINED;
    Some some(count, const_cast<MPI_Request*>(array_of_requests));
    if (!some.any_active()) {
      *flag = 1;
      return write_empty_status(status);
    }
    if (some.first_ready() < 0) drive_once();
    const int ready = some.first_ready();
    if (ready < 0) return;
    *flag = 1;
    *index = ready;
    Request& r = *some.all[static_cast<std::size_t>(ready)];
    settle(r);
    show_status(r, status);
  });
}
int MPI_Request_get_status_some(int incount, const MPI_Request array_of_requests[], int* outcount,
                                int array_of_indices[], MPI_Status* array_of_statuses) {
  return guarded("MPI_Request_get_status_some", object_of(array_of_requests, incount), [&] {
    *outcount = MPI_UNDEFINED;
    Some some(incount, const_cast<MPI_Request*>(array_of_requests));
    if (!some.any_active()) return;
    if (some.first_ready() < 0) drive_once();
    *outcount = 0;
    for (std::size_t i = 0; i < some.all.size(); ++i) {
      if (!some.is_active(i) || !is_ready(*some.all[i])) continue;
      settle(*some.all[i]);
      show_status(*some.all[i], array_of_statuses == MPI_STATUSES_IGNORE
                                    ? MPI_STATUS_IGNORE
                                    : array_of_statuses + *outcount);
      array_of_indices[(*outcount)++] = static_cast<int>(i);
    }
  });
}

int MPI_Request_free(MPI_Request* request) {
  return guarded("MPI_Request_free", object_of(request, 1), [&] {
    const RequestRef r = shared_request(*request);
    if (!r) fail(MPI_ERR_REQUEST, "the request is MPI_REQUEST_NULL");
    if (r->what == RequestKind::general && r->general.free != nullptr &&
        r->over.load(std::memory_order_acquire)) {
      r->general.free(r->general.state);
    }
    if (r->active && !is_ready(*r)) let_go(r);
    requests().remove(*request);
    *request = MPI_REQUEST_NULL;
  });
}

int MPI_Start(MPI_Request* request) {
  return guarded("MPI_Start", object_of(request, 1), [&] {
    const RequestRef r = shared_request(*request);
    if (!r || !r->persistent) fail(MPI_ERR_REQUEST, "this is no persistent request");
    start_again(r);
  });
}
int MPI_Startall(int count, MPI_Request array_of_requests[]) {
  return guarded("MPI_Startall", object_of(array_of_requests, count), [&] {
    Some some(count, array_of_requests);
    for (const RequestRef& r : some.all) {
      if (!r || !r->persistent) fail(MPI_ERR_REQUEST, "this is no persistent request");
    }
    for (const RequestRef& r : some.all) start_again(r);
  });
}

int MPI_Cancel(MPI_Request* request) {
  return guarded("MPI_Cancel", object_of(request, 1), [&] {
    const RequestRef r = shared_request(*request);
    if (!r) fail(MPI_ERR_REQUEST, "the request is MPI_REQUEST_NULL");
    if (r->what == RequestKind::general) {
      const General& g = r->general;
      const int code = g.cancel == nullptr
                           ? MPI_SUCCESS
                           : g.cancel(g.state, r->over.load(std::memory_order_acquire) ? 1 : 0);
      if (code != MPI_SUCCESS) fail(code, "the program's function said so");
      return;
    }
    if (!r->active || r->what != RequestKind::receive) return;  // a send goes on to its end
    const Mail::Lock lock(world().mail());
    world().mail().cancel(*r);
  });
}
int MPI_Test_cancelled(const MPI_Status* status, int* flag) {
  *flag = status_cancelled(*status) ? 1 : 0;
  return MPI_SUCCESS;
}
int MPI_Status_set_cancelled(MPI_Status* status, int flag) {
  set_status_cancelled(*status, flag != 0);
  return MPI_SUCCESS;
}

int MPI_Grequest_start(MPI_Grequest_query_function* query_fn, MPI_Grequest_free_function* free_fn,
                       MPI_Grequest_cancel_function* cancel_fn, void* extra_state,
                       MPI_Request* request) {
  return guarded("MPI_Grequest_start", {}, [&] {
    auto r = std::make_shared<Request>(RequestKind::general);
    r->general = {query_fn, free_fn, cancel_fn, extra_state};
    r->active = true;
    *request = requests().add(std::move(r));
  });
}
int MPI_Grequest_complete(MPI_Request request) {
  return guarded("MPI_Grequest_complete", {}, [&] {
    const RequestRef r = shared_request(request);
    if (!r || r->what != RequestKind::general) {
      fail(MPI_ERR_REQUEST, "this is no request that the program completes");
    }
    r->over.store(true, std::memory_order_release);
    if (World* const w = world_or_null()) w->mail().ring();
  });
}

}  // namespace tutti::mpi
