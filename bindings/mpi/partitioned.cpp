// Partitioned messages. A send goes when the program has said of its last part that it is there; a
// part of a receive is there when all are. They match each other alone, in the order of the calls.
#include "bindings/mpi/point_to_point.h"
#include "bindings/mpi/procedures.h"
#include "bindings/mpi/world.h"

namespace tutti::mpi {
namespace {

// Their contexts are not those of other messages.
constexpr std::uint64_t kPartitioned = 0x5a5a'0000'0000'5a5a;

void make(const char* procedure, RequestKind kind, int partitions, Message m, MPI_Comm comm,
          MPI_Request* handle) {
  if (partitions < 1) fail(MPI_ERR_COUNT, "the number of partitions is {}", partitions);
  check_count(m.count);
  if (m.peer == MPI_ANY_SOURCE) fail(MPI_ERR_RANK, "the source cannot be any");
  if (m.tag == MPI_ANY_TAG) fail(MPI_ERR_TAG, "the tag cannot be any");
  m.count *= partitions;
  auto request = std::make_shared<Request>(kind);
  request->procedure = procedure;
  request->persistent = true;
  if (kind == RequestKind::send) {
    fill_send(*request, m, comm, SendMode::standard, true);
  } else {
    fill_receive(*request, m, comm, true);
  }
  request->context ^= kPartitioned;
  request->said.resize(static_cast<std::size_t>(partitions));
  if (kind == RequestKind::send) {
    request->begin = [](Request& r) {
      r.said.assign(r.said.size(), false);
      r.missing = r.said.size();
    };
  }
  *handle = requests().add(std::move(request));
}

RequestRef partitioned(MPI_Request handle, RequestKind kind) {
  RequestRef r = shared_request(handle);
  if (!r || r->said.empty() || r->what != kind) {
    fail(MPI_ERR_REQUEST, "this is no request of a partitioned {}",
         kind == RequestKind::send ? "send" : "receive");
  }
  return r;
}

void say(const RequestRef& r, int partition) {
  if (partition < 0 || static_cast<std::size_t>(partition) >= r->said.size()) {
    fail(MPI_ERR_ARG, "partition {} is none of the {}", partition, r->said.size());
  }
  bool last = false;
  {
    const Mail::Lock lock(world().mail());
    if (!r->active || r->said[static_cast<std::size_t>(partition)]) {
      fail(MPI_ERR_REQUEST, "partition {} is ready already, or the send is not started", partition);
    }
    r->said[static_cast<std::size_t>(partition)] = true;
    last = --r->missing == 0;
  }
  if (last) start_message(r);
}

}  // namespace

int MPI_Psend_init(const void* buf, int partitions, int count, MPI_Datatype datatype, int dest,
                   int tag, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return MPI_Psend_init_c(buf, partitions, count, datatype, dest, tag, comm, info, request);
}
int MPI_Psend_init_c(const void* buf, int partitions, MPI_Count count, MPI_Datatype datatype,
                     int dest, int tag, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return guarded("MPI_Psend_init", comm, [&] {
    (void)info;
    make("MPI_Psend_init", RequestKind::send, partitions,
         {const_cast<void*>(buf), count, datatype, dest, tag}, comm, request);
  });
}
int MPI_Precv_init(void* buf, int partitions, int count, MPI_Datatype datatype, int dest, int tag,
                   MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return MPI_Precv_init_c(buf, partitions, count, datatype, dest, tag, comm, info, request);
}
int MPI_Precv_init_c(void* buf, int partitions, MPI_Count count, MPI_Datatype datatype, int dest,
                     int tag, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  return guarded("MPI_Precv_init", comm, [&] {
    (void)info;
    make("MPI_Precv_init", RequestKind::receive, partitions, {buf, count, datatype, dest, tag},
         comm, request);
  });
}
int MPI_Pready(int partition, MPI_Request request) {
  return guarded("MPI_Pready", object_of(&request, 1),
                 [&] { say(partitioned(request, RequestKind::send), partition); });
}
int MPI_Pready_range(int partition_low, int partition_high, MPI_Request request) {
  return guarded("MPI_Pready_range", object_of(&request, 1), [&] {
    const RequestRef r = partitioned(request, RequestKind::send);
    for (int p = partition_low; p <= partition_high; ++p) say(r, p);
  });
}
int MPI_Pready_list(int length, const int array_of_partitions[], MPI_Request request) {
  return guarded("MPI_Pready_list", object_of(&request, 1), [&] {
    const RequestRef r = partitioned(request, RequestKind::send);
    for (int i = 0; i < length; ++i) say(r, array_of_partitions[i]);
  });
}
int MPI_Parrived(MPI_Request request, int partition, int* flag) {
  return guarded("MPI_Parrived", object_of(&request, 1), [&] {
    const RequestRef r = partitioned(request, RequestKind::receive);
    if (partition < 0 || static_cast<std::size_t>(partition) >= r->said.size()) {
      fail(MPI_ERR_ARG, "partition {} is none of the {}", partition, r->said.size());
    }
    if (!is_ready(*r)) {
      const Mail::Lock lock(world().mail());
      world().mail().progress();
    }
    *flag = is_ready(*r) ? 1 : 0;
  });
}

}  // namespace tutti::mpi
