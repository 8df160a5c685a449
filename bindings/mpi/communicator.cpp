#include "bindings/mpi/communicator.h"

#include <algorithm>
#include <climits>
#include <exception>
#include <thread>
#include <unordered_map>

#include "bindings/mpi/info.h"
#include "bindings/mpi/point_to_point.h"
#include "bindings/mpi/procedures.h"
#include "bindings/mpi/request.h"
#include "bindings/mpi/start.h"
#include "bindings/mpi/world.h"
#include "bootstrap/unique_id.h"
#include "comm/impl.h"

namespace tutti::mpi {
namespace {

/// The processes of the job behind the ranks of Tutti's communicator.
std::vector<int> processes_of(const Comm& comm) {
  if (!comm.is_inter()) return comm.group->members();
  std::vector<int> all(static_cast<std::size_t>(comm.tutti.size()));
  const auto add = [&](const Group& group, const std::vector<int>& places) {
    for (std::size_t r = 0; r < places.size(); ++r) {
      all[static_cast<std::size_t>(places[r])] = group.at(static_cast<int>(r));
    }
  };
  add(*comm.group, comm.places);
  add(*comm.remote, comm.remote_places);
  return all;
}

/// The processes of a communicator of Tutti's that was made from `like`: both know a process by the
/// same number (RankGroup).
std::vector<int> members_of(Communicator& comm, const Comm& like) {
  const RankGroup& group = *comm.impl().group;
  const RankGroup& known = *like.tutti.impl().group;
  const std::vector<int> processes = processes_of(like);
  std::unordered_map<int, int> by_number;
  for (int r = 0; r < known.size(); ++r) {
    by_number[known.member(r)] = processes[static_cast<std::size_t>(r)];
  }
  std::vector<int> members;
  for (int r = 0; r < group.size(); ++r) members.push_back(by_number.at(group.member(r)));
  return members;
}

CommRef made(Communicator tutti, std::vector<int> members, int rank) {
  auto comm = std::make_shared<Comm>();
  comm->group = std::make_shared<const Group>(std::move(members));
  comm->rank = rank;
  comm->context = tutti.impl().group->id();
  comm->tutti = std::move(tutti);
  comm->handler = error_handlers().share(MPI_ERRORS_ARE_FATAL);
  return comm;
}

/// `like`: the communicator that the new one is made from.
CommRef made(Communicator tutti, const Comm& like) {
  const int rank = tutti.rank();
  std::vector<int> members = members_of(tutti, like);
  CommRef comm = made(std::move(tutti), std::move(members), rank);
  comm->handler = like.handler;
  return comm;
}

/// Gives `copy` the members of another one, and the own place among them.
void take_members(Comm& copy, const Comm& of) {
  copy.group = of.group;
  copy.remote = of.remote;
  copy.rank = of.rank;
  copy.places = of.places;
  copy.remote_places = of.remote_places;
}

/// A place where the ranks of a new communicator can meet, some of the parent's.
UniqueId new_place(const Comm& parent, const Group& members) {
  const RankGroup& known = *parent.tutti.impl().group;
  const std::vector<int> processes = processes_of(parent);
  bool is_one_host = true;
  for (int r = 0; r < known.size(); ++r) {
    if (r == known.rank() || members.rank_of(processes[static_cast<std::size_t>(r)]) < 0) continue;
    is_one_host = is_one_host && known.same_host(r);
  }
  return make_unique_id(is_one_host ? MeetingPlace() : MeetingPlace::among_hosts());
}

/// Sends the place to a rank of the parent, or receives it.
void pass(Comm& parent, RequestKind kind, int peer, int tag, UniqueId& where) {
  const RequestRef message = own_message(
      kind, "MPI_Comm_create_group", parent.context ^ Comm::kCreations, tag, where.bytes.size());
  message->own = parent.rank;
  message->peer = peer;
  message->job_peer = parent.group->at(peer);
  std::ranges::copy(where.bytes, message->packed.begin());
  start_message(message);
  let_go(message);  // whatever becomes of this call
  world().mail().wait(message->procedure, [&] { return is_ready(*message); });
  std::ranges::copy(message->packed, where.bytes.begin());
}

/// What a thread of its own does, as a request.
std::shared_ptr<Request> begin_task(const char* procedure, std::function<void()> work) {
  auto request = std::make_shared<Request>(RequestKind::task);
  request->procedure = procedure;
  request->active = true;
  Mail& mail = world().mail();
  mail.task_begins();
  try {
    std::thread([request, &mail, work = std::move(work)]() mutable {
      try {
        work();
      } catch (const std::exception& e) {
        request->fail(error_class_of(code_of_current_exception(request->procedure)), e.what());
      }
      work = nullptr;  // what it holds goes before anybody hears of the end
      request->over.store(true, std::memory_order_release);
      mail.task_ends();
    }).detach();
  } catch (...) {
    mail.task_ends();
    throw;
  }
  return request;
}

/// Collective: Tutti's split(). Before it all are here, and nobody waits for messages of this rank
/// outside of the call.
Communicator split_tutti(Communicator& tutti, int color, int key) {
  run(tutti, {.collective = Collective::barrier});
  return leaving_messages([&] { return tutti.split(color, key); });
}

}  // namespace

Comm::~Comm() {
  World* const w = world_or_null();
  if (w == nullptr) return;
  const Mail::Lock lock(w->mail());
  for (const std::uint64_t own : {std::uint64_t{0}, kCreations, kGreetings}) {
    w->mail().matching().forget(context ^ own);
  }
}

CommRef comm_of_job(Communicator tutti) {
  std::vector<int> members;
  for (int r = 0; r < tutti.size(); ++r) members.push_back(r);
  const int rank = tutti.rank();
  CommRef comm = made(std::move(tutti), std::move(members), rank);
  comm->name = "MPI_COMM_WORLD";
  return comm;
}

CommRef comm_of_self(int process) {
  CommRef comm = made(Communicator::alone(), {process}, 0);
  comm->name = "MPI_COMM_SELF";
  return comm;
}

Handles<Comm, MPI_Comm>& comms() {
  static auto* all = new Handles<Comm, MPI_Comm>;
  return *all;
}

[[noreturn]] void refuse_comm(MPI_Comm comm) {
  if (world_or_null() == nullptr) {
    fail(MPI_ERR_COMM,
         "MPI is not initialised: call MPI_Init first (and nothing after MPI_Finalize)");
  }
  fail(MPI_ERR_COMM, "the communicator is {}",
       comm == MPI_COMM_NULL ? "MPI_COMM_NULL" : "none, or has been freed");
}

Comm& comm_of(MPI_Comm comm) {
  Comm* const found = comms().find(comm);
  if (found == nullptr) refuse_comm(comm);
  return *found;
}

CommRef shared_comm(MPI_Comm comm) {
  CommRef found = comms().share(comm);
  if (!found) refuse_comm(comm);
  return found;
}

Comm& intra_comm_of(MPI_Comm comm) {
  Comm& found = comm_of(comm);
  if (found.is_inter()) fail(MPI_ERR_COMM, "this is no call for an intercommunicator");
  return found;
}

void check_peer(const Comm& comm, int rank, const char* what) {
  const int size = comm.peers().size();
  if (rank < 0 || rank >= size) {
    fail(MPI_ERR_RANK, "the {} is rank {}, but the communicator's ranks are 0 to {}", what, rank,
         size - 1);
  }
}

CommRef split(Comm& parent, int color, int key) {
  Communicator part = split_tutti(parent.tutti, color == MPI_UNDEFINED ? -1 : color, key);
  return part ? made(std::move(part), parent) : nullptr;
}

CommRef create(Comm& parent, const Group& group) {
  const int own = parent.group->at(parent.rank);
  const int rank = group.rank_of(own);
  const bool is_member = rank != MPI_UNDEFINED;
  // Groups of one call that have members in common are equal; so their first members tell them
  // apart.
  return split(parent, is_member ? parent.group->rank_of(group.at(0)) : MPI_UNDEFINED,
               is_member ? rank : 0);
}

CommRef create_of_members(Comm& parent, const Group& group, int tag) {
  const Options options = parent.tutti.options();
  const int size = group.size();
  const int rank = group.rank_of(parent.group->at(parent.rank));
  Communicator tutti;
  if (size == 1) {
    tutti = Communicator::alone(options);
  } else {
    const auto in_parent = [&](int r) { return parent.group->rank_of(group.at(r)); };
    UniqueId where;
    if (rank == 0) {
      where = new_place(parent, group);
      for (int r = 1; r < size; ++r) pass(parent, RequestKind::send, in_parent(r), tag, where);
    } else {
      pass(parent, RequestKind::receive, in_parent(0), tag, where);
    }
    // A thread of its own meets the others, as messages go on meanwhile.
    auto met = std::make_shared<Communicator>();
    const auto meets = begin_task("MPI_Comm_create_group", [met, where, rank, size, options] {
      *met = Communicator::create(where, rank, size, options);
    });
    world().mail().wait("MPI_Comm_create_group", [&] { return is_ready(*meets); });
    if (meets->outcome.error_class != MPI_SUCCESS) {
      throw Failure(meets->outcome.error_class, meets->outcome.sentence);
    }
    tutti = std::move(*met);
  }
  CommRef comm = made(std::move(tutti), group.members(), rank);
  comm->handler = parent.handler;
  return comm;
}

CommRef duplicate(Comm& parent) {
  CommRef copy = made(split_tutti(parent.tutti, 0, parent.tutti.rank()), parent);
  if (parent.is_inter()) take_members(*copy, parent);
  return copy;
}

Communicator communicator_of_starts(Comm& comm) {
  constexpr const char* kHint = "mpi_assert_strict_persistent_collective_ordering";
  if (comm.tutti.size() == 1 || (comm.info && comm.info->get(kHint) == "true")) return {};
  return split_tutti(comm.tutti, 0, comm.tutti.rank());
}

std::shared_ptr<Request> duplicate_later(const CommRef& parent, const CommRef& copy) {
  take_members(*copy, *parent);
  copy->handler = parent->handler;
  // Among the parent's calls there is one broadcast, which takes its place there as any started
  // call does: of where the new one's ranks meet.
  Communicator& tutti = parent->tutti;
  const int rank = tutti.rank();
  const int size = tutti.size();
  auto where = std::make_shared<UniqueId>();
  std::exception_ptr why;
  try {
    if (rank == 0) *where = new_place(*parent, Group(processes_of(*parent)));
  } catch (...) {
    why = std::current_exception();  // the others hear of it: an id of zeros
  }
  Future told = tutti.start({.collective = Collective::broadcast,
                             .in = where.get(),
                             .out = where.get(),
                             .count = sizeof *where,
                             .type = DataType::uint8});
  const auto meets = [copy, where, told, why, options = tutti.options(), rank, size]() mutable {
    told.wait();
    if (why) std::rethrow_exception(why);
    if (*where == UniqueId{}) {
      throw Error(ErrorCode::system, "rank 0 has found no place to meet: see its error", 0);
    }
    copy->tutti = Communicator::create(*where, rank, size, options);
    copy->context = copy->tutti.impl().group->id();
  };
  const auto request = begin_task("MPI_Comm_idup", meets);
  request->comm = parent;  // the broadcast is of it, though the program may free it
  return request;
}

CommRef make_inter(CommRef both, GroupRef here, GroupRef there) {
  const auto places = [&](const Group& group) {
    std::vector<int> found;
    for (const int p : group.members()) found.push_back(both->group->rank_of(p));
    return found;
  };
  both->places = places(*here);
  both->remote_places = places(*there);
  both->rank = here->rank_of(both->group->at(both->rank));
  both->group = std::move(here);
  both->remote = std::move(there);
  return both;
}

CommRef split_inter(Comm& parent, int color, int key) {
  Communicator part = split_tutti(parent.tutti, color == MPI_UNDEFINED ? -1 : color, key);
  if (!part) return nullptr;
  CommRef both = made(std::move(part), parent);
  std::vector<int> here;
  std::vector<int> there;
  for (const int p : both->group->members()) {
    (parent.group->rank_of(p) != MPI_UNDEFINED ? here : there).push_back(p);
  }
  if (there.empty()) return nullptr;
  return make_inter(std::move(both), std::make_shared<const Group>(std::move(here)),
                    std::make_shared<const Group>(std::move(there)));
}

CommRef merge(Comm& inter, bool high) {
  // The side whose first member comes first in Tutti's communicator goes first where both say the
  // same.
  std::vector<std::uint8_t> says(static_cast<std::size_t>(inter.tutti.size()));
  const std::uint8_t own = high ? 1 : 0;
  run(inter.tutti, {.collective = Collective::all_gather,
                    .in = &own,
                    .out = says.data(),
                    .count = 1,
                    .type = DataType::uint8});
  const bool first_side = inter.places.front() < inter.remote_places.front();
  const bool others = says[static_cast<std::size_t>(inter.remote_places.front())] != 0;
  const bool last = high != others ? high : !first_side;
  const int key = inter.rank + (last ? inter.tutti.size() : 0);
  return made(split_tutti(inter.tutti, 0, key), inter);
}

MPI_Comm publish(CommRef comm) {
  if (!comm) return MPI_COMM_NULL;
  Comm& object = *comm;
  object.handle = comms().add(std::move(comm));
  return object.handle;
}

void free_comm(MPI_Comm& comm) {
  Comm& object = comm_of(comm);
  if (comms().is_predefined(comm)) {
    fail(MPI_ERR_COMM, "{} cannot be freed", object.name);
  }
  object.attributes.clear(bits_of(comm));
  comms().remove(comm);
  comm = MPI_COMM_NULL;
}

// --- What other files ask for --------------------------------------------------------------------

std::shared_ptr<ErrorHandler>* handler_place(MPI_Comm comm) {
  Comm* const found = comms().find(comm);
  return found == nullptr ? nullptr : &found->handler;
}

Attributes& attributes_of(MPI_Comm comm) { return comm_of(comm).attributes; }

bool predefined_attribute(MPI_Comm comm, int key, void** value) {
  comm_of(comm);
  if (has_intel_values()) {  // each has the number of the next one
    key = key == MPI_APPNUM          ? MPI_UNIVERSE_SIZE
          : key == MPI_LASTUSEDCODE  ? MPI_APPNUM
          : key == MPI_UNIVERSE_SIZE ? MPI_LASTUSEDCODE
                                     : key;
  }
  static int tag_ub = INT_MAX;
  static int host = MPI_PROC_NULL;
  static int io = MPI_ANY_SOURCE;
  static int global = 0;
  static int size = 0;
  static int code = 0;
  switch (key) {
    case MPI_TAG_UB:
      *value = &tag_ub;
      return true;
    case MPI_HOST:
      *value = &host;
      return true;
    case MPI_IO:
      *value = &io;
      return true;
    case MPI_WTIME_IS_GLOBAL:
      *value = &global;
      return true;
    case MPI_UNIVERSE_SIZE:
      size = world().all()->size();
      *value = &size;
      return true;
    case MPI_LASTUSEDCODE:
      code = last_used_code();
      *value = &code;
      return true;
    default:
      return false;  // MPI_APPNUM: no launcher tells it
  }
}

}  // namespace tutti::mpi
