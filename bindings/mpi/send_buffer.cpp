// The room that the program attaches for buffered sends: of the process, of a communicator, of a
// session. The library keeps the copies in memory of its own, and counts as if they were there: so
// a program that has attached too little is told so, as under any other library. Threads may
// attach, send and flush side by side: one lock is for the buffers and for what they count.
#include <map>
#include <mutex>
#include <vector>

#include "bindings/mpi/point_to_point.h"
#include "bindings/mpi/procedures.h"
#include "bindings/mpi/world.h"

namespace tutti::mpi {

namespace {
std::mutex of_buffers;  // taken within the mail's lock, never around it
}

class SendBuffer {
 public:
  SendBuffer(void* memory, MPI_Count bytes) : memory_(memory), bytes_(bytes) {}

  bool is_automatic() const { return memory_ == MPI_BUFFER_AUTOMATIC; }
  void* memory() const { return memory_; }
  MPI_Count bytes() const { return bytes_; }

  void add(const RequestRef& send) {
    const std::lock_guard lock(of_buffers);
    const auto needs = static_cast<MPI_Count>(send->packed.size()) + MPI_BSEND_OVERHEAD;
    forget_old();
    if (!is_automatic() && used_ + needs > bytes_) {
      fail(MPI_ERR_BUFFER,
           "the message needs {} bytes of the attached buffer (MPI_BSEND_OVERHEAD included), "
           "but {} of {} are free: attach a larger one, or wait for earlier messages "
           "(MPI_Buffer_flush)",
           needs, bytes_ - used_, bytes_);
    }
    used_ += needs;
    sends_.push_back(send);
  }
  /// Those that are not over.
  std::vector<RequestRef> under_way() {
    const std::lock_guard lock(of_buffers);
    forget_old();
    return sends_;
  }
  bool is_empty() {
    const std::lock_guard lock(of_buffers);
    forget_old();
    return sends_.empty();
  }
  void wait(const char* procedure) {
    if (is_empty()) return;
    world().mail().wait(procedure, [&] { return is_empty(); });
  }

 private:
  void forget_old() {
    std::erase_if(sends_, [&](const RequestRef& send) {
      if (!send->over.load(std::memory_order_acquire)) return false;
      used_ -= static_cast<MPI_Count>(send->packed.size()) + MPI_BSEND_OVERHEAD;
      return true;
    });
  }

  void* const memory_;
  const MPI_Count bytes_;
  MPI_Count used_ = 0;
  std::vector<RequestRef> sends_;
};

namespace {

using Place = std::shared_ptr<SendBuffer>;

Place& of_process() {
  static Place place;
  return place;
}

std::map<MPI_Session, Place>& of_sessions() {
  static auto* places = new std::map<MPI_Session, Place>;
  return *places;
}

Place& of_session(MPI_Session session) {
  if (handler_place(session) == nullptr) {
    fail(MPI_ERR_SESSION, "the session is MPI_SESSION_NULL, or has been finalised");
  }
  const std::lock_guard lock(of_buffers);
  return of_sessions()[session];
}

Place& of_comm(MPI_Comm comm) { return comm_of(comm).send_buffer; }

Place what_is_at(const Place& place) {
  const std::lock_guard lock(of_buffers);
  return place;
}

void attach(Place& place, void* buffer, MPI_Count size) {
  if (size < 0) fail(MPI_ERR_BUFFER, "the size is {} bytes, but has to be 0 or more", size);
  const std::lock_guard lock(of_buffers);
  if (place) fail(MPI_ERR_BUFFER, "a buffer is attached already: detach it first");
  place = std::make_shared<SendBuffer>(buffer, size);
}

template <class Size>
void detach(Place& place, const char* procedure, void* buffer_addr, Size* size) {
  const Place attached = what_is_at(place);
  if (attached) attached->wait(procedure);
  *size = attached ? static_cast<Size>(attached->bytes()) : 0;
  *static_cast<void**>(buffer_addr) = attached ? attached->memory() : nullptr;
  const std::lock_guard lock(of_buffers);
  if (place == attached) place = nullptr;
}

void flush(const Place& place, const char* procedure) {
  if (const Place attached = what_is_at(place)) attached->wait(procedure);
}

/// A request that is over when all that is under way now is.
MPI_Request start_flush(const Place& place) {
  auto request = std::make_shared<Request>(RequestKind::both);
  request->active = true;
  if (const Place attached = what_is_at(place)) request->parts = attached->under_way();
  return requests().add(std::move(request));
}

}  // namespace

void start_buffered(const RequestRef& send) {
  if (send->peer == MPI_PROC_NULL) return;
  const Place place = [&] {
    const std::lock_guard lock(of_buffers);
    Place nearest = send->comm ? send->comm->send_buffer : nullptr;
    if (!nearest) nearest = of_process();
    for (const auto& [session, its] : of_sessions()) {
      if (!nearest) nearest = its;
    }
    return nearest;
  }();
  if (!place) {
    fail(MPI_ERR_BUFFER, "no buffer is attached for buffered sends: call MPI_Buffer_attach first");
  }
  send->packed.resize(send->buffer.bytes());
  send->buffer.pack(send->packed.data());
  send->keeps_packed = true;
  place->add(send);
  send->itself = send;
  start_message(send);
}

#define TUTTI_MPI_BUFFER(SIZE, SUFFIX)                                                            \
  int MPI_Buffer_attach##SUFFIX(void* buffer, SIZE size) {                                        \
    return guarded("MPI_Buffer_attach", {}, [&] { attach(of_process(), buffer, size); });         \
  }                                                                                               \
  int MPI_Buffer_detach##SUFFIX(void* buffer_addr, SIZE* size) {                                  \
    return guarded("MPI_Buffer_detach", {},                                                       \
                   [&] { detach(of_process(), "MPI_Buffer_detach", buffer_addr, size); });        \
  }                                                                                               \
  int MPI_Comm_attach_buffer##SUFFIX(MPI_Comm comm, void* buffer, SIZE size) {                    \
    return guarded("MPI_Comm_attach_buffer", comm, [&] { attach(of_comm(comm), buffer, size); }); \
  }                                                                                               \
  int MPI_Comm_detach_buffer##SUFFIX(MPI_Comm comm, void* buffer_addr, SIZE* size) {              \
    return guarded("MPI_Comm_detach_buffer", comm,                                                \
                   [&] { detach(of_comm(comm), "MPI_Comm_detach_buffer", buffer_addr, size); });  \
  }                                                                                               \
  int MPI_Session_attach_buffer##SUFFIX(MPI_Session session, void* buffer, SIZE size) {           \
    return guarded("MPI_Session_attach_buffer", session,                                          \
                   [&] { attach(of_session(session), buffer, size); });                           \
  }                                                                                               \
  int MPI_Session_detach_buffer##SUFFIX(MPI_Session session, void* buffer_addr, SIZE* size) {     \
    return guarded("MPI_Session_detach_buffer", session, [&] {                                    \
      detach(of_session(session), "MPI_Session_detach_buffer", buffer_addr, size);                \
    });                                                                                           \
  }
TUTTI_MPI_BUFFER(int, )
TUTTI_MPI_BUFFER(MPI_Count, _c)

int MPI_Buffer_flush() {
  return guarded("MPI_Buffer_flush", {}, [] { flush(of_process(), "MPI_Buffer_flush"); });
}
int MPI_Buffer_iflush(MPI_Request* request) {
  return guarded("MPI_Buffer_iflush", {}, [&] { *request = start_flush(of_process()); });
}
int MPI_Comm_flush_buffer(MPI_Comm comm) {
  return guarded("MPI_Comm_flush_buffer", comm,
                 [&] { flush(of_comm(comm), "MPI_Comm_flush_buffer"); });
}
int MPI_Comm_iflush_buffer(MPI_Comm comm, MPI_Request* request) {
  return guarded("MPI_Comm_iflush_buffer", comm, [&] { *request = start_flush(of_comm(comm)); });
}

int MPI_Session_flush_buffer(MPI_Session session) {
  return guarded("MPI_Session_flush_buffer", session,
                 [&] { flush(of_session(session), "MPI_Session_flush_buffer"); });
}
int MPI_Session_iflush_buffer(MPI_Session session, MPI_Request* request) {
  return guarded("MPI_Session_iflush_buffer", session,
                 [&] { *request = start_flush(of_session(session)); });
}

}  // namespace tutti::mpi
