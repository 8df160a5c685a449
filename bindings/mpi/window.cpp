#include "bindings/mpi/window.h"

#include <unistd.h>

#include <new>
#include <numeric>

#include "bindings/mpi/procedures.h"
#include "bindings/mpi/window_far.h"
#include "bindings/mpi/world.h"
#include "comm/impl.h"

namespace tutti::mpi {
namespace {

/// What a member tells the others.
struct Card {
  std::uint64_t address;
  std::int64_t bytes, unit;
  std::int64_t pid;
};

std::size_t board_bytes(int size) {
  return sizeof(Board) + static_cast<std::size_t>(size) * sizeof(Meeting);
}

/// Throws where memory is to be shared by hosts. Whether there are several.
bool is_among_hosts(Comm& comm, int flavor) {
  const RankGroup& group = *comm.tutti.impl().group;
  for (int r = 0; r < group.size(); ++r) {
    if (r == group.rank() || group.same_host(r)) continue;
    if (flavor != MPI_WIN_FLAVOR_SHARED) return true;
    fail(MPI_ERR_RMA_SHARED,
         "rank {} is on another host than rank {}, so they share no memory: MPI_Comm_split_type "
         "makes communicators of hosts",
         r, group.rank());
  }
  return false;
}

/// Of memory that all members share in one piece, which the first one has.
std::byte* start_of_piece(const Win& win) {
  return win.rank() == 0 ? win.memory.data() : win.memory.map(0);
}

/// Collective. As the standard has it, a member's memory begins where that of the one before ends.
/// Where this member's begins; null where nobody has any.
std::byte* take_piece(Win& win) {
  Communicator& tutti = win.comm->tutti;
  const std::uint64_t own = static_cast<std::uint64_t>(win.bytes);
  std::vector<std::uint64_t> each(static_cast<std::size_t>(win.size()));
  run(tutti, {.collective = Collective::all_gather,
              .in = &own,
              .out = each.data(),
              .count = 1,
              .type = DataType::uint64});
  const auto mine = each.begin() + win.rank();
  const std::uint64_t all = std::accumulate(each.begin(), each.end(), std::uint64_t{0});
  win.memory = leaving_messages([&] { return tutti.window(win.rank() == 0 ? all : 0); });
  return all == 0 ? nullptr
                  : start_of_piece(win) + std::accumulate(each.begin(), mine, std::uint64_t{0});
}

}  // namespace

Handles<Win, MPI_Win>& wins() {
  static auto* all = new Handles<Win, MPI_Win>;
  return *all;
}

Win& win_of(MPI_Win win) {
  Win* const found = wins().find(win);
  if (found == nullptr) {
    fail(MPI_ERR_WIN, "the window is {}",
         win == MPI_WIN_NULL ? "MPI_WIN_NULL" : "none, or has been freed");
  }
  return *found;
}

WinRef make_win(Comm& parent, int flavor, void* base, MPI_Aint bytes, int unit, InfoRef info) {
  if (parent.is_inter()) fail(MPI_ERR_COMM, "this is no call for an intercommunicator");
  if (bytes < 0) fail(MPI_ERR_SIZE, "the size is {} bytes, but has to be 0 or more", bytes);
  if (unit < 1)
    fail(MPI_ERR_DISP, "the unit of displacements is {}, but has to be 1 or more", unit);
  if (flavor == MPI_WIN_FLAVOR_CREATE && base == nullptr && bytes > 0) {
    fail(MPI_ERR_BASE, "the memory is null, but is to have {} bytes", bytes);
  }
  auto win = std::make_shared<Win>();
  win->is_far = is_among_hosts(parent, flavor);
  win->comm = duplicate(parent);
  win->flavor = flavor;
  win->unit = unit;
  win->bytes = bytes;
  win->info = std::move(info);
  win->handler = error_handlers().share(MPI_ERRORS_ARE_FATAL);
  Communicator& tutti = win->comm->tutti;
  const int size = win->size();
  win->board = leaving_messages([&] { return tutti.window(board_bytes(size)); });
  const bool allocates = flavor == MPI_WIN_FLAVOR_ALLOCATE || flavor == MPI_WIN_FLAVOR_SHARED;
  const bool is_one_piece = flavor == MPI_WIN_FLAVOR_SHARED &&
                            win->info->get("alloc_shared_noncontig") != std::string("true");
  if (is_one_piece) {
    win->base = take_piece(*win);
  } else if (allocates) {
    win->memory = leaving_messages([&] { return tutti.window(static_cast<std::size_t>(bytes)); });
    win->base = win->memory.data();
  } else {
    win->base = base;
  }
  const Card mine{reinterpret_cast<std::uint64_t>(win->base), bytes, unit, getpid()};
  std::vector<Card> cards(static_cast<std::size_t>(size));
  run(tutti, {.collective = Collective::all_gather,
              .in = &mine,
              .out = cards.data(),
              .count = sizeof mine,
              .type = DataType::uint8});
  std::byte* next = is_one_piece ? start_of_piece(*win) : nullptr;
  for (int r = 0; r < size; ++r) {
    const Card& card = cards[static_cast<std::size_t>(r)];
    Win::Part part;
    part.address = card.address;
    part.bytes = card.bytes;
    part.unit = card.unit;
    part.pid = static_cast<int>(card.pid);
    if (r == win->rank()) {
      part.mapped = static_cast<std::byte*>(win->base);
    } else if (is_one_piece) {
      part.mapped = next;
    } else if (allocates && card.bytes > 0) {
      part.mapped = win->memory.map(r);
    }
    if (is_one_piece) next += card.bytes;
    part.board = reinterpret_cast<Board*>(win->board.map(r));
    win->parts.push_back(part);
  }
  win->held.resize(static_cast<std::size_t>(size));
  win->let_in.resize(static_cast<std::size_t>(size));
  win->gone_to.resize(static_cast<std::size_t>(size));
  if (win->is_far) answer_far(*win);
  run(tutti, {.collective = Collective::barrier});
  return win;
}

std::shared_ptr<ErrorHandler>* handler_place(MPI_Win win) {
  Win* const found = wins().find(win);
  return found == nullptr ? nullptr : &found->handler;
}
Attributes& attributes_of(MPI_Win win) { return win_of(win).attributes; }
bool predefined_attribute(MPI_Win handle, int key, void** value) {
  Win& win = win_of(handle);
  switch (key) {
    case MPI_WIN_BASE:
      *value = win.base;
      return true;
    case MPI_WIN_SIZE:
      *value = &win.bytes;
      return true;
    case MPI_WIN_DISP_UNIT:
      *value = &win.unit;
      return true;
    case MPI_WIN_CREATE_FLAVOR:
      *value = &win.flavor;
      return true;
    case MPI_WIN_MODEL:
      *value = &win.model;
      return true;
    default:
      return false;
  }
}

// --- The procedures ------------------------------------------------------------------------------

namespace {

int create(const char* procedure, MPI_Comm comm, int flavor, void* base, MPI_Aint bytes,
           MPI_Aint unit, MPI_Info info, void* baseptr, MPI_Win* handle) {
  return guarded(procedure, comm, [&] {
    *handle = MPI_WIN_NULL;
    InfoRef hints = shared_info_or_null(info);
    hints = hints ? std::make_shared<Info>(hints->entries()) : std::make_shared<Info>();
    WinRef win =
        make_win(comm_of(comm), flavor, base, bytes, static_cast<int>(unit), std::move(hints));
    if (baseptr != nullptr) *static_cast<void**>(baseptr) = win->base;
    Win& object = *win;
    *handle = object.handle = wins().add(std::move(win));
  });
}

template <class Unit>
void shared_query(MPI_Win handle, int rank, MPI_Aint* size, Unit* disp_unit, void* baseptr) {
  const Win& win = win_of(handle);
  int of = rank;
  if (rank == MPI_PROC_NULL) {  // the first that has memory
    of = 0;
    while (of < win.size() - 1 && win.parts[static_cast<std::size_t>(of)].bytes == 0) ++of;
  } else {
    check_peer(*win.comm, rank, "rank");
  }
  const Win::Part& part = win.parts[static_cast<std::size_t>(of)];
  // What this process does not address has no bytes for it.
  const bool reached = part.mapped != nullptr;
  *size = reached ? part.bytes : 0;
  *disp_unit = static_cast<Unit>(part.unit);
  *static_cast<void**>(baseptr) = *size > 0 ? part.mapped : nullptr;
}

}  // namespace

#define TUTTI_MPI_WINDOWS(UNIT, SUFFIX)                                                            \
  int MPI_Win_create##SUFFIX(void* base, MPI_Aint size, UNIT disp_unit, MPI_Info info,             \
                             MPI_Comm comm, MPI_Win* win) {                                        \
    return create("MPI_Win_create", comm, MPI_WIN_FLAVOR_CREATE, base, size, disp_unit, info,      \
                  nullptr, win);                                                                   \
  }                                                                                                \
  int MPI_Win_allocate##SUFFIX(MPI_Aint size, UNIT disp_unit, MPI_Info info, MPI_Comm comm,        \
                               void* baseptr, MPI_Win* win) {                                      \
    return create("MPI_Win_allocate", comm, MPI_WIN_FLAVOR_ALLOCATE, nullptr, size, disp_unit,     \
                  info, baseptr, win);                                                             \
  }                                                                                                \
  int MPI_Win_allocate_shared##SUFFIX(MPI_Aint size, UNIT disp_unit, MPI_Info info, MPI_Comm comm, \
                                      void* baseptr, MPI_Win* win) {                               \
    return create("MPI_Win_allocate_shared", comm, MPI_WIN_FLAVOR_SHARED, nullptr, size,           \
                  disp_unit, info, baseptr, win);                                                  \
  }                                                                                                \
  int MPI_Win_shared_query##SUFFIX(MPI_Win win, int rank, MPI_Aint* size, UNIT* disp_unit,         \
                                   void* baseptr) {                                                \
    return guarded("MPI_Win_shared_query", win,                                                    \
                   [&] { shared_query(win, rank, size, disp_unit, baseptr); });                    \
  }
TUTTI_MPI_WINDOWS(int, )
TUTTI_MPI_WINDOWS(MPI_Aint, _c)

int MPI_Win_create_dynamic(MPI_Info info, MPI_Comm comm, MPI_Win* win) {
  return create("MPI_Win_create_dynamic", comm, MPI_WIN_FLAVOR_DYNAMIC, nullptr, 0, 1, info,
                nullptr, win);
}
// The memory of a dynamic window is what addresses name. Inside of a host the kernel says which of
// it is there; for others this rank does.
namespace {
Win& dynamic(MPI_Win win) {
  Win& w = win_of(win);
  if (w.flavor != MPI_WIN_FLAVOR_DYNAMIC) {
    fail(MPI_ERR_RMA_FLAVOR, "only a window of MPI_Win_create_dynamic takes memory later");
  }
  return w;
}
}  // namespace
int MPI_Win_attach(MPI_Win win, void* base, MPI_Aint size) {
  return guarded("MPI_Win_attach", win, [&] {
    Win& w = dynamic(win);
    if (size < 0) fail(MPI_ERR_SIZE, "the size is {} bytes, but has to be 0 or more", size);
    const Mail::Lock lock(world().mail());
    w.attached.push_back({reinterpret_cast<std::uint64_t>(base), static_cast<std::uint64_t>(size)});
  });
}
int MPI_Win_detach(MPI_Win win, const void* base) {
  return guarded("MPI_Win_detach", win, [&] {
    Win& w = dynamic(win);
    const Mail::Lock lock(world().mail());
    std::erase_if(w.attached, [&](const Win::Attached& a) {
      return a.address == reinterpret_cast<std::uint64_t>(base);
    });
  });
}

int MPI_Win_free(MPI_Win* win) {
  return guarded("MPI_Win_free", *win, [&] {
    Win& w = win_of(*win);
    if (w.exposed || w.started || w.holds_all) {
      fail(MPI_ERR_RMA_SYNC, "the window is in the middle of an epoch");
    }
    w.attributes.clear(bits_of(*win));
    run(w.comm->tutti, {.collective = Collective::barrier});
    if (w.is_far) end_answers(w);
    const WinRef last = wins().remove(*win);
    *win = MPI_WIN_NULL;
    last->memory.end();
    last->board.end();
  });
}

int MPI_Win_get_group(MPI_Win win, MPI_Group* group) {
  return guarded("MPI_Win_get_group", win, [&] { *group = groups().add(win_of(win).comm->group); });
}
int MPI_Win_set_name(MPI_Win win, const char* win_name) {
  return guarded("MPI_Win_set_name", win, [&] {
    win_of(win).name.assign(win_name, strnlen(win_name, MPI_MAX_OBJECT_NAME - 1));
  });
}
int MPI_Win_get_name(MPI_Win win, char* win_name, int* resultlen) {
  return guarded("MPI_Win_get_name", win, [&] {
    const std::string name = win == MPI_WIN_NULL ? "MPI_WIN_NULL" : win_of(win).name;
    std::memcpy(win_name, name.c_str(), name.size() + 1);
    *resultlen = static_cast<int>(name.size());
  });
}
int MPI_Win_set_info(MPI_Win win, MPI_Info info) {
  return guarded("MPI_Win_set_info", win, [&] {
    Win& w = win_of(win);
    for (const auto& [key, value] : shared_info(info)->entries()) w.info->set(key, value);
  });
}
int MPI_Win_get_info(MPI_Win win, MPI_Info* info_used) {
  return guarded("MPI_Win_get_info", win, [&] {
    *info_used = infos().add(std::make_shared<Info>(win_of(win).info->entries()));
  });
}

}  // namespace tutti::mpi
