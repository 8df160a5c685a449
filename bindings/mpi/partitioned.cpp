// Partitioned messages: each partition of the sender's is a message of its own, which goes when the
// program says that it is there, and so the receiver has it early.
//
// The two sides may cut the data differently, so the sender's MPI_Psend_init sends a greeting (how
// many partitions, of how many bytes, in which context), and the receiver's MPI_Precv_init posts a
// receive for it. Greetings match by source and tag in the order of those calls, as the standard
// has it. From then on all rounds use the context of the greeting, with a partition's number as
// tag.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "bindings/mpi/point_to_point.h"
#include "bindings/mpi/procedures.h"
#include "bindings/mpi/start.h"
#include "bindings/mpi/world.h"

namespace tutti::mpi {
namespace {

// The contexts of what follows a greeting are not those of other messages.
constexpr std::uint64_t kChannels = 0xa5a5'0000'0000'0000;

}  // namespace

struct Greeting {
  std::uint64_t partitions = 0, each = 0;  // bytes of one
  std::uint64_t channel = 0;
};

struct Partitions {
  Partitions(bool are_sent, int number) : sends(are_sent), said(static_cast<std::size_t>(number)) {}
  Partitions(const Partitions&) = delete;
  Partitions& operator=(const Partitions&) = delete;
  ~Partitions() {
    World* const w = world_or_null();
    if (w == nullptr || !greeted) return;
    const Mail::Lock lock(w->mail());
    w->mail().matching().forget(greeting.channel);
  }

  const bool sends;
  std::vector<bool> said;         // of a send, by partition: the program has said that it is there
  Greeting greeting;              // of the sender
  bool greeted = false;           // it has come
  bool waits = false;             // for it, and is started
  std::vector<std::byte> packed;  // a receive's data, where its buffer has holes
};

namespace {

/// What greets or is greeted. It belongs to the mail until it is over, whatever becomes of `r`.
RequestRef greeting_of(const Request& r, RequestKind kind) {
  RequestRef message =
      own_message(kind, r.procedure, r.context ^ Comm::kGreetings, r.tag, sizeof(Greeting));
  message->comm = r.comm;
  message->own = r.own;
  message->peer = r.peer;
  message->job_peer = r.job_peer;
  return message;
}

void greet(const RequestRef& message) {
  start_message(message);
  let_go(message);
}

/// One of the partitions that a sender has, as a message that is not started.
RequestRef part_of(const Request& r, RequestKind kind, std::size_t number, Buffer buffer) {
  auto part = std::make_shared<Request>(kind);
  part->procedure = r.procedure;
  part->context = r.partitions->greeting.channel;
  part->own = r.own;
  part->peer = r.peer;
  part->job_peer = r.job_peer;
  part->tag = static_cast<int>(number);
  part->buffer = std::move(buffer);
  return part;
}

void make_send(Request& r, const Message& one) {
  static std::atomic<std::uint64_t> last{0};
  Partitions& p = *r.partitions;
  const std::size_t n = p.said.size();
  const auto own = static_cast<std::uint64_t>(world().mail().rank());
  p.greeting = {n, r.buffer.bytes() / n, kChannels ^ own << 32 ^ ++last};
  const MPI_Aint step = one.count * r.buffer.type->extent();
  for (std::size_t i = 0; i < n; ++i) {
    auto* const base = static_cast<std::byte*>(one.buffer) + static_cast<MPI_Aint>(i) * step;
    r.parts.push_back(part_of(r, RequestKind::send, i, {base, one.count, r.buffer.type}));
  }
  const RequestRef message = greeting_of(r, RequestKind::send);
  std::memcpy(message->packed.data(), &p.greeting, sizeof p.greeting);
  greet(message);
}

/// Posts a receive for each partition of the sender's. With the mail's lock, after the greeting.
void post_parts(Request& r) {
  static const std::shared_ptr<Type> byte = shared_type(MPI_BYTE);
  Partitions& p = *r.partitions;
  const std::uint64_t room = r.buffer.bytes();
  std::byte* to = nullptr;
  if (r.buffer.is_packed()) {
    to = room > 0 ? r.buffer.data() : nullptr;
  } else {
    p.packed.resize(room);
    to = p.packed.data();
  }
  if (r.parts.empty()) {
    for (std::size_t i = 0; i < p.greeting.partitions; ++i) {
      const std::uint64_t from = std::min(room, i * p.greeting.each);
      const std::uint64_t bytes = std::min(room - from, p.greeting.each);
      RequestRef part = part_of(r, RequestKind::receive, i,
                                {to + from, static_cast<MPI_Count>(bytes), Held<Type>(byte)});
      part->bytes = bytes;
      part->data = bytes > 0 ? to + from : nullptr;
      if (!r.buffer.is_packed()) {
        part->then = [&r, from, bytes, data = part->data] {
          r.buffer.type->unpack(data, static_cast<MPI_Count>(from), static_cast<MPI_Count>(bytes),
                                r.buffer.base, r.buffer.count);
        };
      }
      r.parts.push_back(std::move(part));
    }
  }
  for (const RequestRef& part : r.parts) {
    begin_anew(*part);
    world().mail().start_receive(*part);
  }
  if (p.greeting.partitions == 0) {
    r.fail(MPI_ERR_OTHER, "the send has no sensible number of partitions: 0, or far more than fit");
  }
  p.waits = false;
  r.missing.store(0, std::memory_order_release);
}

/// Whether the receiver makes requests for so many partitions: few, or no more than it has room
/// for.
bool makes_sense(const Greeting& greeting, std::uint64_t room) {
  constexpr std::uint64_t kFew = 1 << 16;
  return greeting.partitions <= kFew ||
         (greeting.each > 0 && greeting.partitions <= room / greeting.each);
}

void make_receive(const RequestRef& r) {
  const RequestRef message = greeting_of(*r, RequestKind::receive);
  message->then = [from = message.get(), known = std::weak_ptr(r)] {
    const RequestRef receive = known.lock();
    if (!receive) return;
    Partitions& p = *receive->partitions;
    std::memcpy(&p.greeting, from->packed.data(), sizeof p.greeting);
    if (!makes_sense(p.greeting, receive->buffer.bytes())) p.greeting = {};
    p.greeted = true;
    if (p.waits) post_parts(*receive);
  };
  greet(message);
}

void begin_round(Request& r) {
  Partitions& p = *r.partitions;
  const Mail::Lock lock(world().mail());
  p.said.assign(p.said.size(), false);
  if (r.peer == MPI_PROC_NULL) {
    r.missing = 0;
  } else if (p.sends) {
    r.missing = p.said.size();
  } else {
    r.missing = 1;
    p.waits = true;
    if (p.greeted) post_parts(r);
  }
}

void make(const char* procedure, RequestKind kind, int partitions, const Message& one,
          MPI_Comm comm, MPI_Request* handle) {
  if (partitions < 1) fail(MPI_ERR_COUNT, "the number of partitions is {}", partitions);
  check_count(one.count);
  if (one.peer == MPI_ANY_SOURCE) fail(MPI_ERR_RANK, "the source cannot be any");
  if (one.tag == MPI_ANY_TAG) fail(MPI_ERR_TAG, "the tag cannot be any");
  Message all = one;
  all.count *= partitions;
  auto request = std::make_shared<Request>(RequestKind::both);
  request->procedure = procedure;
  request->persistent = true;
  request->partitions = std::make_shared<Partitions>(kind == RequestKind::send, partitions);
  request->begin = begin_round;
  if (kind == RequestKind::send) {
    fill_send(*request, all, comm, SendMode::standard, true);
    if (one.peer != MPI_PROC_NULL) make_send(*request, one);
  } else {
    fill_receive(*request, all, comm, true);
    request->finish = [r = request.get()] {
      r->outcome.source = r->peer;
      r->outcome.tag = r->peer == MPI_PROC_NULL ? MPI_ANY_TAG : r->tag;
      const Greeting& g = r->partitions->greeting;  // all 0 without a peer
      r->outcome.bytes = std::min<std::uint64_t>(r->buffer.bytes(), g.partitions * g.each);
    };
    if (one.peer != MPI_PROC_NULL) make_receive(request);
  }
  *handle = requests().add(std::move(request));
}

RequestRef partitioned(MPI_Request handle, bool sends, int partition) {
  RequestRef r = shared_request(handle);
  if (!r || !r->partitions || r->partitions->sends != sends) {
    fail(MPI_ERR_REQUEST, "this is no request of a partitioned {}", sends ? "send" : "receive");
  }
  const std::size_t n = r->partitions->said.size();
  if (partition < 0 || static_cast<std::size_t>(partition) >= n) {
    fail(MPI_ERR_ARG, "partition {} is none of the {}", partition, n);
  }
  return r;
}

void say(MPI_Request handle, int partition) {
  const RequestRef r = partitioned(handle, true, partition);
  const auto i = static_cast<std::size_t>(partition);
  {
    const Mail::Lock lock(world().mail());
    if (!r->active || r->partitions->said[i]) {
      fail(MPI_ERR_REQUEST, "partition {} is ready already, or the send is not started", partition);
    }
    r->partitions->said[i] = true;
  }
  if (r->parts.empty()) return;  // to MPI_PROC_NULL
  start_message(r->parts[i]);
  r->missing.fetch_sub(1, std::memory_order_release);
}

/// Whether all that the sender has of the receiver's partition is there. With the mail's lock.
bool has_arrived(const Request& r, std::size_t partition) {
  if (is_ready(r)) return true;
  if (r.missing.load(std::memory_order_acquire) > 0) return false;
  const std::size_t each = r.partitions->greeting.each;
  const std::size_t own = r.buffer.bytes() / r.partitions->said.size();
  if (each == 0 || own == 0) return false;  // as there is nothing in it: when all is over
  const std::size_t first = partition * own / each;
  const std::size_t last = (partition * own + own - 1) / each;
  for (std::size_t i = first; i <= last && i < r.parts.size(); ++i) {
    if (!is_ready(*r.parts[i])) return false;
  }
  return true;
}

}  // namespace

#define TUTTI_MPI_PARTITIONED(COUNT, SUFFIX)                                                      \
  int MPI_Psend_init##SUFFIX(const void* buf, int partitions, COUNT count, MPI_Datatype datatype, \
                             int dest, int tag, MPI_Comm comm, MPI_Info info,                     \
                             MPI_Request* request) {                                              \
    return guarded("MPI_Psend_init", comm, [&] {                                                  \
      (void)info;                                                                                 \
      make("MPI_Psend_init", RequestKind::send, partitions,                                       \
           {const_cast<void*>(buf), count, datatype, dest, tag}, comm, request);                  \
    });                                                                                           \
  }                                                                                               \
  int MPI_Precv_init##SUFFIX(void* buf, int partitions, COUNT count, MPI_Datatype datatype,       \
                             int dest, int tag, MPI_Comm comm, MPI_Info info,                     \
                             MPI_Request* request) {                                              \
    return guarded("MPI_Precv_init", comm, [&] {                                                  \
      (void)info;                                                                                 \
      make("MPI_Precv_init", RequestKind::receive, partitions, {buf, count, datatype, dest, tag}, \
           comm, request);                                                                        \
    });                                                                                           \
  }
TUTTI_MPI_PARTITIONED(int, )
TUTTI_MPI_PARTITIONED(MPI_Count, _c)

int MPI_Pready(int partition, MPI_Request request) {
  return guarded("MPI_Pready", object_of(&request, 1), [&] { say(request, partition); });
}
int MPI_Pready_range(int partition_low, int partition_high, MPI_Request request) {
  return guarded("MPI_Pready_range", object_of(&request, 1), [&] {
    for (int p = partition_low; p <= partition_high; ++p) say(request, p);
  });
}
int MPI_Pready_list(int length, const int array_of_partitions[], MPI_Request request) {
  return guarded("MPI_Pready_list", object_of(&request, 1), [&] {
    for (int i = 0; i < length; ++i) say(request, array_of_partitions[i]);
  });
}
int MPI_Parrived(MPI_Request request, int partition, int* flag) {
  return guarded("MPI_Parrived", object_of(&request, 1), [&] {
    const RequestRef r = partitioned(request, false, partition);
    const auto i = static_cast<std::size_t>(partition);
    const Mail::Lock lock(world().mail());
    if (!has_arrived(*r, i)) world().mail().progress();
    *flag = has_arrived(*r, i) ? 1 : 0;
  });
}

}  // namespace tutti::mpi
