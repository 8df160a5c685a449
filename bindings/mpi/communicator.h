// Communicators of MPI: a group of the job's processes, Tutti's communicator of them for their
// collectives, and a context for their messages (mail.h). An intercommunicator has two groups, and
// Tutti's communicator of both.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bindings/mpi/attributes.h"
#include "bindings/mpi/errhandler.h"
#include "bindings/mpi/group.h"
#include "bindings/mpi/handle.h"
#include "tutti.h"

namespace tutti::mpi {

class Info;
class SendBuffer;
struct Request;

struct Comm {
  GroupRef group;
  GroupRef remote;  // of an intercommunicator: whom it talks to
  int rank = 0;     // of this process in `group`
  /// Of the messages: the same at all members, another one for each communicator.
  std::uint64_t context = 0;
  // What the library itself tells members has contexts of its own, made of that one: of
  // MPI_Comm_create_group, and of partitioned messages.
  static constexpr std::uint64_t kCreations = 0xc4ea'0000'0000'c4ea;
  static constexpr std::uint64_t kGreetings = 0x5a5a'0000'0000'5a5a;
  Communicator tutti;
  /// Intercommunicators: the rank in `tutti` of each member, here and there.
  std::vector<int> places, remote_places;

  MPI_Comm handle = MPI_COMM_NULL;
  std::string name;
  std::shared_ptr<ErrorHandler> handler;
  Attributes attributes;
  std::shared_ptr<void> topology;  // topology.h
  std::shared_ptr<Info> info;
  std::shared_ptr<SendBuffer> send_buffer;  // MPI_Comm_attach_buffer
  std::mutex mutex;

  Comm() = default;
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;
  ~Comm();

  int size() const { return group->size(); }
  bool is_inter() const { return remote != nullptr; }
  /// Whom messages go to.
  const Group& peers() const { return remote ? *remote : *group; }
};
using CommRef = std::shared_ptr<Comm>;

Handles<Comm, MPI_Comm>& comms();
/// Throws Failure(MPI_ERR_COMM) for the null handle and a freed one.
Comm& comm_of(MPI_Comm comm);
CommRef shared_comm(MPI_Comm comm);
/// The same, and throws MPI_ERR_COMM for an intercommunicator.
Comm& intra_comm_of(MPI_Comm comm);
/// Throws Failure(MPI_ERR_RANK) unless `rank` is one of the communicator's peers.
void check_peer(const Comm& comm, int rank, const char* what);

/// Of all processes, and of this one.
CommRef comm_of_job(Communicator tutti);
CommRef comm_of_self(int process);

// New ones, without handles. Collective over `parent`'s members; null for those that are none of
// the new one. They have the parent's error handler.

/// `color`: MPI_UNDEFINED, or 0 and more.
CommRef split(Comm& parent, int color, int key);
/// In the group's order.
CommRef create(Comm& parent, const Group& group);
/// The same; collective over the group's members alone, which may make several at once, with a tag
/// for each.
CommRef create_of_members(Comm& parent, const Group& group, int tag);
CommRef duplicate(Comm& parent);
/// The same for MPI_Comm_idup: waits for nobody. A thread of its own meets those of the others, and
/// makes `copy` one of the parent's members; it is to be used when the request is over.
std::shared_ptr<Request> duplicate_later(const CommRef& parent, const CommRef& copy);
/// Of two groups that together are `both`; this process is in the first one.
CommRef make_inter(CommRef both, GroupRef here, GroupRef there);
CommRef split_inter(Comm& parent, int color, int key);
CommRef merge(Comm& inter, bool high);
/// Of a persistent collective's own, as ranks may start theirs in unlike order; none where a hint
/// of the program's (mpi_assert_strict_persistent_collective_ordering) says that they do not.
Communicator communicator_of_starts(Comm& comm);
/// Gives it a handle.
MPI_Comm publish(CommRef comm);
/// Waits for nobody. Throws Failure with what an attribute's delete function returns.
void free_comm(MPI_Comm& comm);

}  // namespace tutti::mpi
