// MPI_Comm_... and MPI_Intercomm_...: communicators, what they are and how they are made.
#include <algorithm>
#include <climits>
#include <cstring>
#include <functional>
#include <string_view>
#include <vector>

#include "bindings/mpi/info.h"
#include "bindings/mpi/procedures.h"
#include "bindings/mpi/request.h"
#include "bindings/mpi/world.h"
#include "comm/impl.h"

namespace tutti::mpi {
namespace {

InfoRef copied(const InfoRef& info) {
  return info ? std::make_shared<Info>(info->entries()) : nullptr;
}

int compare(const GroupRef& a, const GroupRef& b) {
  if (a->members() == b->members()) return MPI_CONGRUENT;
  return a->size() == b->size() && std::ranges::is_permutation(a->members(), b->members())
             ? MPI_SIMILAR
             : MPI_UNEQUAL;
}

void check_color(int color) {
  if (color >= 0 || color == MPI_UNDEFINED) return;
  fail(MPI_ERR_ARG, "the color is {}, but has to be MPI_UNDEFINED, or 0 or more", color);
}

void check_members(const Comm& comm, const Group& group) {
  for (const int p : group.members()) {
    if (comm.group->rank_of(p) == MPI_UNDEFINED) {
      fail(MPI_ERR_GROUP, "the group has a process that the communicator lacks");
    }
  }
}

/// A color for each host: the first rank of the communicator there.
int host_color(Comm& comm) {
  const RankGroup& group = *comm.tutti.impl().group;
  for (int r = 0; r < group.size(); ++r) {
    if (r == group.rank() || group.same_host(r)) return r;
  }
  return 0;
}

/// The leaders hand each other their groups' members, and their groups hear them.
GroupRef group_beyond(Comm& local, int leader, MPI_Comm peer_comm, int remote_leader, int tag) {
  std::vector<int> mine = local.group->members();
  int size = 0;
  if (local.rank == leader) {
    const int own = static_cast<int>(mine.size());
    check_peer(comm_of(peer_comm), remote_leader, "remote leader");
    if (MPI_Sendrecv(&own, 1, MPI_INT, remote_leader, tag, &size, 1, MPI_INT, remote_leader, tag,
                     peer_comm, MPI_STATUS_IGNORE) != MPI_SUCCESS) {
      size = -1;
    }
  }
  run(local.tutti, {Collective::broadcast, &size, &size, 1, DataType::int32, {}, leader});
  if (size < 1) fail(MPI_ERR_COMM, "the leaders could not exchange their groups");
  std::vector<int> theirs(static_cast<std::size_t>(size));
  if (local.rank == leader) {
    MPI_Sendrecv(mine.data(), static_cast<int>(mine.size()), MPI_INT, remote_leader, tag,
                 theirs.data(), size, MPI_INT, remote_leader, tag, peer_comm, MPI_STATUS_IGNORE);
  }
  run(local.tutti, {Collective::broadcast,
                    theirs.data(),
                    theirs.data(),
                    theirs.size(),
                    DataType::int32,
                    {},
                    leader});
  for (const int p : theirs) {
    if (local.group->rank_of(p) != MPI_UNDEFINED) {
      fail(MPI_ERR_COMM, "process {} of the job is in both groups", p);
    }
  }
  return std::make_shared<const Group>(std::move(theirs));
}

/// All processes of two groups, in the same order on both sides.
Group both_of(const Group& a, const Group& b) {
  const bool first = a.at(0) < b.at(0);
  std::vector<int> all = (first ? a : b).members();
  const std::vector<int>& rest = (first ? b : a).members();
  all.insert(all.end(), rest.begin(), rest.end());
  return Group(std::move(all));
}

MPI_Comm new_inter(GroupRef here, GroupRef there, int tag) {
  CommRef both = create_of_members(*world().all(), both_of(*here, *there), tag);
  return publish(make_inter(std::move(both), std::move(here), std::move(there)));
}

int tag_of(const char* stringtag) {
  return static_cast<int>(std::hash<std::string_view>{}(stringtag)&INT_MAX);
}

}  // namespace

int MPI_Comm_size(MPI_Comm comm, int* size) {
  return guarded("MPI_Comm_size", comm, [&] { *size = comm_of(comm).size(); });
}
int MPI_Comm_rank(MPI_Comm comm, int* rank) {
  return guarded("MPI_Comm_rank", comm, [&] { *rank = comm_of(comm).rank; });
}
int MPI_Comm_remote_size(MPI_Comm comm, int* size) {
  return guarded("MPI_Comm_remote_size", comm, [&] {
    const Comm& c = comm_of(comm);
    if (!c.is_inter()) fail(MPI_ERR_COMM, "this is no intercommunicator");
    *size = c.remote->size();
  });
}
int MPI_Comm_test_inter(MPI_Comm comm, int* flag) {
  return guarded("MPI_Comm_test_inter", comm, [&] { *flag = comm_of(comm).is_inter() ? 1 : 0; });
}
int MPI_Comm_group(MPI_Comm comm, MPI_Group* group) {
  return guarded("MPI_Comm_group", comm, [&] { *group = groups().add(comm_of(comm).group); });
}
int MPI_Comm_remote_group(MPI_Comm comm, MPI_Group* group) {
  return guarded("MPI_Comm_remote_group", comm, [&] {
    const Comm& c = comm_of(comm);
    if (!c.is_inter()) fail(MPI_ERR_COMM, "this is no intercommunicator");
    *group = groups().add(c.remote);
  });
}
int MPI_Group_rank(MPI_Group group, int* rank) {
  return guarded("MPI_Group_rank", {},
                 [&] { *rank = group_of(group).rank_of(world().mail().rank()); });
}

int MPI_Comm_compare(MPI_Comm comm1, MPI_Comm comm2, int* result) {
  return guarded("MPI_Comm_compare", comm1, [&] {
    const Comm& a = comm_of(comm1);
    const Comm& b = comm_of(comm2);
    if (&a == &b) {
      *result = MPI_IDENT;
    } else if (a.is_inter() != b.is_inter()) {
      *result = MPI_UNEQUAL;
    } else {
      // From better to worse: MPI_CONGRUENT, MPI_SIMILAR, MPI_UNEQUAL.
      *result = compare(a.group, b.group);
      if (a.is_inter()) *result = std::max(*result, compare(a.remote, b.remote));
    }
  });
}

int MPI_Comm_get_name(MPI_Comm comm, char* comm_name, int* resultlen) {
  return guarded("MPI_Comm_get_name", comm, [&] {
    const std::string name = comm == MPI_COMM_NULL ? "MPI_COMM_NULL" : comm_of(comm).name;
    std::memcpy(comm_name, name.c_str(), name.size() + 1);
    *resultlen = static_cast<int>(name.size());
  });
}
int MPI_Comm_set_name(MPI_Comm comm, const char* comm_name) {
  return guarded("MPI_Comm_set_name", comm, [&] {
    comm_of(comm).name.assign(comm_name, strnlen(comm_name, MPI_MAX_OBJECT_NAME - 1));
  });
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* newcomm) {
  return guarded("MPI_Comm_split", comm, [&] {
    *newcomm = MPI_COMM_NULL;
    Comm& c = comm_of(comm);
    check_color(color);
    *newcomm = publish(c.is_inter() ? split_inter(c, color, key) : split(c, color, key));
  });
}
int MPI_Comm_split_type(MPI_Comm comm, int split_type, int key, MPI_Info info, MPI_Comm* newcomm) {
  return guarded("MPI_Comm_split_type", comm, [&] {
    *newcomm = MPI_COMM_NULL;
    Comm& c = comm_of(comm);
    const InfoRef hints = shared_info_or_null(info);
    const auto part = [&](int color) {
      return publish(c.is_inter() ? split_inter(c, color, key) : split(c, color, key));
    };
    switch (split_type) {
      case MPI_UNDEFINED:
        *newcomm = part(MPI_UNDEFINED);
        return;
      case MPI_COMM_TYPE_SHARED:
        *newcomm = part(host_color(c));
        return;
      case MPI_COMM_TYPE_HW_GUIDED:
      case MPI_COMM_TYPE_RESOURCE_GUIDED: {
        // Of the parts of a machine one name is known; who asks for another one gets none.
        const bool host = hints && hints->get("mpi_hw_resource_type") == "mpi_shared_memory";
        *newcomm = part(host ? host_color(c) : MPI_UNDEFINED);
        return;
      }
      case MPI_COMM_TYPE_HW_UNGUIDED:
        *newcomm = part(MPI_UNDEFINED);
        return;
      default:
        fail(MPI_ERR_ARG, "{} is no kind of split that the standard knows", split_type);
    }
  });
}
int MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm* newcomm) {
  return guarded("MPI_Comm_create", comm, [&] {
    *newcomm = MPI_COMM_NULL;
    Comm& c = comm_of(comm);
    const Group& g = group_of(group);
    check_members(c, g);
    if (!c.is_inter()) {
      *newcomm = publish(create(c, g));
      return;
    }
    const int rank = g.rank_of(c.group->at(c.rank));
    *newcomm = publish(split_inter(c, rank == MPI_UNDEFINED ? MPI_UNDEFINED : 0, rank));
  });
}
int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* newcomm) {
  return guarded("MPI_Comm_create_group", comm, [&] {
    *newcomm = MPI_COMM_NULL;
    Comm& c = intra_comm_of(comm);
    const Group& g = group_of(group);
    check_members(c, g);
    if (tag < 0) fail(MPI_ERR_TAG, "the tag is {}, but has to be 0 or more", tag);
    if (g.rank_of(c.group->at(c.rank)) == MPI_UNDEFINED) return;
    *newcomm = publish(create_of_members(c, g, tag));
  });
}
int MPI_Comm_create_from_group(MPI_Group group, const char* stringtag, MPI_Info info,
                               MPI_Errhandler errhandler, MPI_Comm* newcomm) {
  return guarded("MPI_Comm_create_from_group", {}, [&] {
    *newcomm = MPI_COMM_NULL;
    (void)info;
    const Group& g = group_of(group);
    if (g.rank_of(world().mail().rank()) == MPI_UNDEFINED) return;
    CommRef made = create_of_members(*world().all(), g, tag_of(stringtag));
    if (auto handler = error_handlers().share(errhandler)) made->handler = handler;
    *newcomm = publish(std::move(made));
  });
}

namespace {

/// Gives a copy its handle, and what else it has of the original. `info`: the hints; null: those
/// of the original.
MPI_Comm publish_copy(MPI_Comm comm, CommRef copy, InfoRef info) {
  Comm& c = comm_of(comm);
  copy->topology = c.topology;
  copy->info = info ? std::move(info) : copied(c.info);
  Comm& object = *copy;
  const MPI_Comm handle = publish(std::move(copy));
  try {
    c.attributes.copy_to(object.attributes, bits_of(comm), bits_of(handle));
  } catch (...) {
    comms().remove(handle);
    throw;
  }
  return handle;
}

}  // namespace

namespace {

int dup(const char* procedure, MPI_Comm comm, MPI_Comm* newcomm, auto&& hints) {
  return guarded(procedure, comm, [&] {
    *newcomm = MPI_COMM_NULL;
    InfoRef info = hints();
    *newcomm = publish_copy(comm, duplicate(comm_of(comm)), std::move(info));
  });
}
int idup(const char* procedure, MPI_Comm comm, MPI_Comm* newcomm, MPI_Request* request,
         auto&& hints) {
  return guarded(procedure, comm, [&] {
    *newcomm = MPI_COMM_NULL;
    InfoRef info = hints();
    auto copy = std::make_shared<Comm>();
    RequestRef later = duplicate_later(shared_comm(comm), copy);
    *newcomm = publish_copy(comm, std::move(copy), std::move(info));
    *request = requests().add(std::move(later));
  });
}
InfoRef hints_of(MPI_Info info) {
  InfoRef hints = copied(shared_info_or_null(info));
  return hints ? hints : std::make_shared<Info>();
}
InfoRef the_originals() { return nullptr; }

}  // namespace

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* newcomm) {
  return dup("MPI_Comm_dup", comm, newcomm, the_originals);
}
int MPI_Comm_dup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm* newcomm) {
  return dup("MPI_Comm_dup_with_info", comm, newcomm, [&] { return hints_of(info); });
}
int MPI_Comm_idup(MPI_Comm comm, MPI_Comm* newcomm, MPI_Request* request) {
  return idup("MPI_Comm_idup", comm, newcomm, request, the_originals);
}
int MPI_Comm_idup_with_info(MPI_Comm comm, MPI_Info info, MPI_Comm* newcomm, MPI_Request* request) {
  return idup("MPI_Comm_idup_with_info", comm, newcomm, request, [&] { return hints_of(info); });
}
int MPI_Comm_set_info(MPI_Comm comm, MPI_Info info) {
  return guarded("MPI_Comm_set_info", comm, [&] {
    Comm& c = comm_of(comm);
    const InfoRef hints = shared_info(info);
    const InfoRef own = c.info ? c.info : std::make_shared<Info>();
    for (const auto& [key, value] : hints->entries()) own->set(key, value);
    c.info = own;
  });
}
int MPI_Comm_get_info(MPI_Comm comm, MPI_Info* info_used) {
  return guarded("MPI_Comm_get_info", comm, [&] {
    const Comm& c = comm_of(comm);
    *info_used = infos().add(c.info ? copied(c.info) : std::make_shared<Info>());
  });
}
int MPI_Comm_free(MPI_Comm* comm) {
  return guarded("MPI_Comm_free", *comm, [&] { free_comm(*comm); });
}
int MPI_Comm_disconnect(MPI_Comm* comm) {
  return guarded("MPI_Comm_disconnect", *comm, [&] {
    Comm& c = comm_of(*comm);
    run(c.tutti, {.collective = Collective::barrier});
    free_comm(*comm);
  });
}
int MPI_Comm_get_parent(MPI_Comm* parent) {
  return guarded("MPI_Comm_get_parent", {}, [&] { *parent = MPI_COMM_NULL; });
}

int MPI_Intercomm_create(MPI_Comm local_comm, int local_leader, MPI_Comm peer_comm,
                         int remote_leader, int tag, MPI_Comm* newintercomm) {
  return guarded("MPI_Intercomm_create", local_comm, [&] {
    *newintercomm = MPI_COMM_NULL;
    Comm& local = intra_comm_of(local_comm);
    check_peer(local, local_leader, "local leader");
    if (tag < 0) fail(MPI_ERR_TAG, "the tag is {}, but has to be 0 or more", tag);
    GroupRef there = group_beyond(local, local_leader, peer_comm, remote_leader, tag);
    *newintercomm = new_inter(local.group, std::move(there), tag);
  });
}
int MPI_Intercomm_create_from_groups(MPI_Group local_group, int local_leader,
                                     MPI_Group remote_group, int remote_leader,
                                     const char* stringtag, MPI_Info info,
                                     MPI_Errhandler errhandler, MPI_Comm* newintercomm) {
  return guarded("MPI_Intercomm_create_from_groups", {}, [&] {
    *newintercomm = MPI_COMM_NULL;
    (void)info, (void)remote_leader;
    const int tag = tag_of(stringtag);
    GroupRef here = shared_group(local_group);
    if (local_leader < 0 || local_leader >= here->size()) {
      fail(MPI_ERR_ARG, "the local leader is no rank of its group");
    }
    // The groups are known to both leaders alone.
    CommRef local = create_of_members(*world().all(), *here, tag);
    int size = 0;
    std::vector<int> theirs;
    if (local->rank == local_leader) {
      theirs = group_of(remote_group).members();
      size = static_cast<int>(theirs.size());
    }
    run(local->tutti, {Collective::broadcast, &size, &size, 1, DataType::int32, {}, local_leader});
    theirs.resize(static_cast<std::size_t>(size));
    run(local->tutti, {Collective::broadcast,
                       theirs.data(),
                       theirs.data(),
                       theirs.size(),
                       DataType::int32,
                       {},
                       local_leader});
    *newintercomm =
        new_inter(std::move(here), std::make_shared<const Group>(std::move(theirs)), tag);
    if (auto handler = error_handlers().share(errhandler)) {
      comm_of(*newintercomm).handler = handler;
    }
  });
}
int MPI_Intercomm_merge(MPI_Comm intercomm, int high, MPI_Comm* newintracomm) {
  return guarded("MPI_Intercomm_merge", intercomm, [&] {
    *newintracomm = MPI_COMM_NULL;
    Comm& c = comm_of(intercomm);
    if (!c.is_inter()) fail(MPI_ERR_COMM, "this is no intercommunicator");
    *newintracomm = publish(merge(c, high != 0));
  });
}

}  // namespace tutti::mpi
