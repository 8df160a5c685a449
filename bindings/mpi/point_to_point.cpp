#include "bindings/mpi/point_to_point.h"

#include <climits>

#include "bindings/mpi/procedures.h"
#include "bindings/mpi/start.h"
#include "bindings/mpi/status_of.h"
#include "bindings/mpi/world.h"

namespace tutti::mpi {
namespace {

void check_tag(int tag, bool may_be_any) {
  if (tag >= 0 || (may_be_any && tag == MPI_ANY_TAG)) return;
  fail(MPI_ERR_TAG, "the tag is {}, but tags are 0 to {}{}", tag, INT_MAX,
       may_be_any ? ", or MPI_ANY_TAG" : "");
}

Buffer buffer_of(const Message& m, bool keeps) {
  check_count(m.count);
  // With nobody, the type of no data may be none.
  const bool is_nothing = m.peer == MPI_PROC_NULL && m.count == 0 && m.type == MPI_DATATYPE_NULL;
  const MPI_Datatype handle = is_nothing ? MPI_BYTE : m.type;
  Type& type = committed_type(handle);
  if (m.buffer == nullptr && m.count > 0 && type.predefined()) {
    fail(MPI_ERR_BUFFER, "the buffer is null, but the call moves {} elements", m.count);
  }
  return {m.buffer, m.count, keeps ? Held<Type>(shared_type(handle)) : Held<Type>(type)};
}

Comm& fill(Request& r, MPI_Comm comm, bool keeps) {
  Comm& c = comm_of(comm);
  if (keeps) r.comm = shared_comm(comm);
  r.context = c.context;
  r.own = c.rank;
  return c;
}

void end_at_once(Request& r) {
  r.outcome.source = MPI_PROC_NULL;
  r.over.store(true, std::memory_order_release);
}

/// A request for a blocking call of this thread, made once. One that the mail still has, because
/// the call has failed, stays with it.
class Blocking {
 public:
  Blocking(RequestKind kind, const char* procedure) : request_(std::move(spare())) {
    if (!request_) request_ = std::make_shared<Request>(kind);
    request_->what = kind;
    request_->procedure = procedure;
  }
  ~Blocking() {
    if (!request_->over.load(std::memory_order_acquire)) {
      if (request_->active) let_go(request_);
      return;
    }
    request_->active = false;
    request_->buffer.type = {};
    spare() = std::move(request_);
  }
  Blocking(const Blocking&) = delete;
  Blocking& operator=(const Blocking&) = delete;
  Request* operator->() const { return request_.get(); }
  Request& operator*() const { return *request_; }
  const RequestRef& ref() const { return request_; }

  void wait() {
    if (!request_->over.load(std::memory_order_acquire)) world().mail().wait_for(*request_);
    if (request_->outcome.error_class != MPI_SUCCESS) {
      throw Failure(request_->outcome.error_class, request_->outcome.sentence);
    }
  }

 private:
  static RequestRef& spare() {
    static thread_local RequestRef one;
    return one;
  }
  RequestRef request_;
};

int send(const char* procedure, SendMode mode, const Message& m, MPI_Comm comm) {
  return guarded(procedure, comm, [&] {
    if (mode == SendMode::buffered) {
      auto request = std::make_shared<Request>(RequestKind::send);
      fill_send(*request, m, comm, mode, true);
      return start_buffered(request);
    }
    Blocking request(RequestKind::send, procedure);
    fill_send(*request, m, comm, mode, false);
    start_message(request.ref());
    request.wait();
  });
}

int receive(const char* procedure, const Message& m, MPI_Comm comm, MPI_Status* status) {
  return guarded(procedure, comm, [&] {
    Blocking request(RequestKind::receive, procedure);
    fill_receive(*request, m, comm, false);
    start_message(request.ref());
    try {
      request.wait();
    } catch (...) {
      show_status(*request, status);
      throw;
    }
    show_status(*request, status);
  });
}

int start(const char* procedure, SendMode mode, const Message& m, MPI_Comm comm,
          MPI_Request* handle) {
  return guarded(procedure, comm, [&] {
    auto request = std::make_shared<Request>(RequestKind::send);
    request->procedure = procedure;
    fill_send(*request, m, comm, mode, true);
    if (mode == SendMode::buffered) {
      start_buffered(request);
      *handle = finished_request();
      return;
    }
    start_message(request);
    *handle = requests().add(std::move(request));
  });
}

int start_receive(const char* procedure, const Message& m, MPI_Comm comm, MPI_Request* handle) {
  return guarded(procedure, comm, [&] {
    auto request = std::make_shared<Request>(RequestKind::receive);
    request->procedure = procedure;
    fill_receive(*request, m, comm, true);
    start_message(request);
    *handle = requests().add(std::move(request));
  });
}

int persistent(const char* procedure, RequestKind kind, SendMode mode, const Message& m,
               MPI_Comm comm, MPI_Request* handle) {
  return guarded(procedure, comm, [&] {
    auto request = std::make_shared<Request>(kind);
    request->procedure = procedure;
    request->persistent = true;
    if (kind == RequestKind::send) {
      fill_send(*request, m, comm, mode, true);
    } else {
      fill_receive(*request, m, comm, true);
    }
    *handle = requests().add(std::move(request));
  });
}

int send_receive(const char* procedure, const Message& out, const Message& in, MPI_Comm comm,
                 MPI_Status* status) {
  return guarded(procedure, comm, [&] {
    auto receive = std::make_shared<Request>(RequestKind::receive);
    receive->procedure = procedure;
    fill_receive(*receive, in, comm, true);
    Blocking send(RequestKind::send, procedure);
    fill_send(*send, out, comm, SendMode::standard, false);
    start_message(receive);
    try {
      start_message(send.ref());
      send.wait();
      wait_until_ready(*receive, procedure);
    } catch (...) {
      let_go(receive);
      throw;
    }
    show_status(*receive, status);
    if (receive->outcome.error_class != MPI_SUCCESS) {
      throw Failure(receive->outcome.error_class, receive->outcome.sentence);
    }
  });
}

int start_send_receive(const char* procedure, const Message& out, const Message& in, MPI_Comm comm,
                       bool replaces, MPI_Request* handle) {
  return guarded(procedure, comm, [&] {
    auto both = std::make_shared<Request>(RequestKind::both);
    both->procedure = procedure;
    both->comm = shared_comm(comm);
    auto receive = std::make_shared<Request>(RequestKind::receive);
    auto send = std::make_shared<Request>(RequestKind::send);
    send->procedure = receive->procedure = procedure;
    fill_receive(*receive, in, comm, true);
    fill_send(*send, out, comm, SendMode::standard, true);
    if (replaces) {
      send->packed.resize(send->buffer.bytes());
      send->buffer.pack(send->packed.data());
      send->keeps_packed = true;
    }
    start_message(receive);
    start_message(send);
    both->active = true;
    both->parts = {send, receive};
    *handle = requests().add(std::move(both));
  });
}

int send_receive_replace(const char* procedure, const Message& out, const Message& in,
                         MPI_Comm comm, MPI_Status* status) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = start_send_receive(procedure, out, in, comm, true, &request);
  return code != MPI_SUCCESS ? code : MPI_Wait(&request, status);
}

// --- Probes --------------------------------------------------------------------------------------

struct Taken {
  std::unique_ptr<Arrived> message;
  CommRef comm;
};
Handles<Taken, MPI_Message>& taken_messages() {
  static auto* all = new Handles<Taken, MPI_Message>;
  return *all;
}

void write_arrived(MPI_Status* status, const Arrived& m) {
  write_status(status, m.envelope.source, m.envelope.tag, static_cast<MPI_Count>(m.bytes), false);
}

/// Where a message is, hands it to `found` with the mail's lock. `waits`: until there is one.
template <class Found>
bool probe(const char* procedure, int source, int tag, MPI_Comm comm, bool waits, Found&& found) {
  Comm& c = comm_of(comm);
  check_tag(tag, true);
  if (source != MPI_ANY_SOURCE) check_peer(c, source, "source");
  Mail& mail = world().mail();
  const auto look = [&] {
    const Arrived* const m = mail.matching().find(c.context, source, tag);
    if (m != nullptr) found(mail, c, *m);
    return m != nullptr;
  };
  if (waits) {
    mail.wait(procedure, look);
    return true;
  }
  const Mail::Lock lock(mail);
  if (look()) return true;
  mail.progress();
  return look();
}

bool probe_and_show(const char* procedure, int source, int tag, MPI_Comm comm, bool waits,
                    MPI_Status* status) {
  if (source == MPI_PROC_NULL) {
    comm_of(comm);
    write_status(status, MPI_PROC_NULL, MPI_ANY_TAG, 0, false);
    return true;
  }
  return probe(procedure, source, tag, comm, waits,
               [&](Mail&, Comm&, const Arrived& m) { write_arrived(status, m); });
}

bool probe_and_take(const char* procedure, int source, int tag, MPI_Comm comm, bool waits,
                    MPI_Message* message, MPI_Status* status) {
  *message = MPI_MESSAGE_NULL;
  if (source == MPI_PROC_NULL) {
    comm_of(comm);
    *message = MPI_MESSAGE_NO_PROC;
    write_status(status, MPI_PROC_NULL, MPI_ANY_TAG, 0, false);
    return true;
  }
  return probe(procedure, source, tag, comm, waits, [&](Mail& mail, Comm& c, const Arrived& m) {
    write_arrived(status, m);
    auto taken = std::make_shared<Taken>();
    taken->comm = shared_comm(comm);
    taken->message = mail.matching().take(c.context, source, tag);
    *message = taken_messages().add(std::move(taken));
  });
}

/// Starts the receive of a message that was taken.
RequestRef receive_taken(const char* procedure, const Message& m, MPI_Message* message) {
  auto request = std::make_shared<Request>(RequestKind::receive);
  request->procedure = procedure;
  request->buffer = buffer_of(m, true);
  request->active = true;
  if (*message == MPI_MESSAGE_NO_PROC) {
    *message = MPI_MESSAGE_NULL;
    end_at_once(*request);
    return request;
  }
  const std::shared_ptr<Taken> taken = taken_messages().share(*message);
  if (!taken) fail(MPI_ERR_ARG, "the message is MPI_MESSAGE_NULL, or has been received");
  taken_messages().remove(*message);
  *message = MPI_MESSAGE_NULL;
  request->comm = taken->comm;
  request->context = taken->comm->context;
  request->bytes = request->buffer.bytes();
  request->data =
      request->buffer.is_packed() && request->bytes > 0 ? request->buffer.data() : nullptr;
  const Mail::Lock lock(world().mail());
  world().mail().start_matched(*request, std::move(taken->message));
  return request;
}

int receive_matched(const char* procedure, const Message& m, MPI_Message* message,
                    MPI_Status* status) {
  return guarded(procedure, {}, [&] {
    const RequestRef request = receive_taken(procedure, m, message);
    try {
      wait_until_ready(*request, procedure);
    } catch (...) {
      let_go(request);
      throw;
    }
    show_status(*request, status);
    if (request->outcome.error_class != MPI_SUCCESS) {
      throw Failure(request->outcome.error_class, request->outcome.sentence);
    }
  });
}

int start_matched(const char* procedure, const Message& m, MPI_Message* message,
                  MPI_Request* handle) {
  return guarded(procedure, {},
                 [&] { *handle = requests().add(receive_taken(procedure, m, message)); });
}

}  // namespace

void begin_anew(Request& r) {
  r.active = true;
  r.over.store(false, std::memory_order_relaxed);
  r.outcome = {};
}

void fill_send(Request& send, const Message& m, MPI_Comm comm, SendMode mode, bool keeps) {
  const Comm& c = fill(send, comm, keeps);
  send.buffer = buffer_of(m, keeps);
  check_tag(m.tag, false);
  send.mode = mode;
  send.peer = m.peer;
  send.tag = m.tag;
  if (m.peer == MPI_PROC_NULL) return;
  check_peer(c, m.peer, "destination");
  send.job_peer = c.peers().at(m.peer);
}

void fill_receive(Request& receive, const Message& m, MPI_Comm comm, bool keeps) {
  const Comm& c = fill(receive, comm, keeps);
  receive.buffer = buffer_of(m, keeps);
  check_tag(m.tag, true);
  receive.peer = m.peer;
  receive.tag = m.tag;
  if (m.peer == MPI_PROC_NULL || m.peer == MPI_ANY_SOURCE) return;
  check_peer(c, m.peer, "source");
}

void start_message(const RequestRef& request) {
  Request& r = *request;
  begin_anew(r);
  if (r.peer == MPI_PROC_NULL) return end_at_once(r);
  r.bytes = r.buffer.bytes();
  if (r.keeps_packed) {
    r.data = r.packed.data();
  } else if (r.bytes == 0 || r.buffer.is_packed()) {
    r.data = r.bytes == 0 ? nullptr : r.buffer.data();
  } else if (r.what == RequestKind::send) {
    r.packed.resize(r.bytes);
    r.buffer.pack(r.packed.data());
    r.data = r.packed.data();
  } else {
    r.data = nullptr;
  }
  Mail& mail = world().mail();
  const Mail::Lock lock(mail);
  if (r.what == RequestKind::send) {
    mail.start_send(r);
  } else {
    mail.start_receive(r);
  }
}

void start_again(const RequestRef& request) {
  if (request->active) fail(MPI_ERR_REQUEST, "the request is active already");
  if (request->begin) {
    begin_anew(*request);
    return request->begin(*request);
  }
  if (request->mode == SendMode::buffered && request->what == RequestKind::send) {
    auto copy = std::make_shared<Request>(RequestKind::send);
    copy->buffer = request->buffer;
    copy->comm = request->comm;
    copy->context = request->context;
    copy->own = request->own;
    copy->peer = request->peer;
    copy->job_peer = request->job_peer;
    copy->tag = request->tag;
    start_buffered(copy);
    begin_anew(*request);
    request->over.store(true, std::memory_order_release);
    return;
  }
  start_message(request);
}

void let_go(const RequestRef& request) {
  for (const RequestRef& part : request->parts) {
    if (part->active) let_go(part);
  }
  if (World* const w = world_or_null()) {
    const Mail::Lock lock(w->mail());
    if (!request->over.load(std::memory_order_acquire)) request->itself = request;
  }
}

// --- The procedures ------------------------------------------------------------------------------

namespace {
void* plain(const void* buffer) { return const_cast<void*>(buffer); }  // of sends, which read it
}  // namespace

#define TUTTI_MPI_SEND_OF(COUNT, SUFFIX, NAME, INAME, MODE)                                       \
  int MPI_##NAME##SUFFIX(const void* buf, COUNT count, MPI_Datatype datatype, int dest, int tag,  \
                         MPI_Comm comm) {                                                         \
    return send("MPI_" #NAME, MODE, {plain(buf), count, datatype, dest, tag}, comm);              \
  }                                                                                               \
  int MPI_##INAME##SUFFIX(const void* buf, COUNT count, MPI_Datatype datatype, int dest, int tag, \
                          MPI_Comm comm, MPI_Request* request) {                                  \
    return start("MPI_" #INAME, MODE, {plain(buf), count, datatype, dest, tag}, comm, request);   \
  }                                                                                               \
  int MPI_##NAME##_init##SUFFIX(const void* buf, COUNT count, MPI_Datatype datatype, int dest,    \
                                int tag, MPI_Comm comm, MPI_Request* request) {                   \
    return persistent("MPI_" #NAME "_init", RequestKind::send, MODE,                              \
                      {plain(buf), count, datatype, dest, tag}, comm, request);                   \
  }
#define TUTTI_MPI_SEND(NAME, INAME, MODE)     \
  TUTTI_MPI_SEND_OF(int, , NAME, INAME, MODE) \
  TUTTI_MPI_SEND_OF(MPI_Count, _c, NAME, INAME, MODE)

TUTTI_MPI_SEND(Send, Isend, SendMode::standard)
TUTTI_MPI_SEND(Ssend, Issend, SendMode::synchronous)
TUTTI_MPI_SEND(Bsend, Ibsend, SendMode::buffered)
TUTTI_MPI_SEND(Rsend, Irsend, SendMode::ready)

#define TUTTI_MPI_RECEIVE(COUNT, SUFFIX)                                                           \
  int MPI_Recv##SUFFIX(void* buf, COUNT count, MPI_Datatype datatype, int source, int tag,         \
                       MPI_Comm comm, MPI_Status* status) {                                        \
    return receive("MPI_Recv", {buf, count, datatype, source, tag}, comm, status);                 \
  }                                                                                                \
  int MPI_Irecv##SUFFIX(void* buf, COUNT count, MPI_Datatype datatype, int source, int tag,        \
                        MPI_Comm comm, MPI_Request* request) {                                     \
    return start_receive("MPI_Irecv", {buf, count, datatype, source, tag}, comm, request);         \
  }                                                                                                \
  int MPI_Recv_init##SUFFIX(void* buf, COUNT count, MPI_Datatype datatype, int source, int tag,    \
                            MPI_Comm comm, MPI_Request* request) {                                 \
    return persistent("MPI_Recv_init", RequestKind::receive, SendMode::standard,                   \
                      {buf, count, datatype, source, tag}, comm, request);                         \
  }                                                                                                \
  int MPI_Mrecv##SUFFIX(void* buf, COUNT count, MPI_Datatype datatype, MPI_Message* message,       \
                        MPI_Status* status) {                                                      \
    return receive_matched("MPI_Mrecv", {buf, count, datatype}, message, status);                  \
  }                                                                                                \
  int MPI_Imrecv##SUFFIX(void* buf, COUNT count, MPI_Datatype datatype, MPI_Message* message,      \
                         MPI_Request* request) {                                                   \
    return start_matched("MPI_Imrecv", {buf, count, datatype}, message, request);                  \
  }                                                                                                \
  int MPI_Sendrecv##SUFFIX(const void* sendbuf, COUNT sendcount, MPI_Datatype sendtype, int dest,  \
                           int sendtag, void* recvbuf, COUNT recvcount, MPI_Datatype recvtype,     \
                           int source, int recvtag, MPI_Comm comm, MPI_Status* status) {           \
    return send_receive("MPI_Sendrecv", {plain(sendbuf), sendcount, sendtype, dest, sendtag},      \
                        {recvbuf, recvcount, recvtype, source, recvtag}, comm, status);            \
  }                                                                                                \
  int MPI_Isendrecv##SUFFIX(const void* sendbuf, COUNT sendcount, MPI_Datatype sendtype, int dest, \
                            int sendtag, void* recvbuf, COUNT recvcount, MPI_Datatype recvtype,    \
                            int source, int recvtag, MPI_Comm comm, MPI_Request* request) {        \
    return start_send_receive(                                                                     \
        "MPI_Isendrecv", {plain(sendbuf), sendcount, sendtype, dest, sendtag},                     \
        {recvbuf, recvcount, recvtype, source, recvtag}, comm, false, request);                    \
  }                                                                                                \
  int MPI_Sendrecv_replace##SUFFIX(void* buf, COUNT count, MPI_Datatype datatype, int dest,        \
                                   int sendtag, int source, int recvtag, MPI_Comm comm,            \
                                   MPI_Status* status) {                                           \
    return send_receive_replace("MPI_Sendrecv_replace", {buf, count, datatype, dest, sendtag},     \
                                {buf, count, datatype, source, recvtag}, comm, status);            \
  }                                                                                                \
  int MPI_Isendrecv_replace##SUFFIX(void* buf, COUNT count, MPI_Datatype datatype, int dest,       \
                                    int sendtag, int source, int recvtag, MPI_Comm comm,           \
                                    MPI_Request* request) {                                        \
    return start_send_receive("MPI_Isendrecv_replace", {buf, count, datatype, dest, sendtag},      \
                              {buf, count, datatype, source, recvtag}, comm, true, request);       \
  }
TUTTI_MPI_RECEIVE(int, )
TUTTI_MPI_RECEIVE(MPI_Count, _c)

int MPI_Probe(int source, int tag, MPI_Comm comm, MPI_Status* status) {
  return guarded("MPI_Probe", comm,
                 [&] { probe_and_show("MPI_Probe", source, tag, comm, true, status); });
}
int MPI_Iprobe(int source, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
  return guarded("MPI_Iprobe", comm, [&] {
    *flag = probe_and_show("MPI_Iprobe", source, tag, comm, false, status) ? 1 : 0;
  });
}
int MPI_Mprobe(int source, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status* status) {
  return guarded("MPI_Mprobe", comm,
                 [&] { probe_and_take("MPI_Mprobe", source, tag, comm, true, message, status); });
}
int MPI_Improbe(int source, int tag, MPI_Comm comm, int* flag, MPI_Message* message,
                MPI_Status* status) {
  return guarded("MPI_Improbe", comm, [&] {
    *flag = probe_and_take("MPI_Improbe", source, tag, comm, false, message, status) ? 1 : 0;
  });
}

}  // namespace tutti::mpi
