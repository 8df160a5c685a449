// The start and the end of MPI in a process, sessions, versions, time and memory.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <thread>

#include "bindings/mpi/errhandler.h"
#include "bindings/mpi/info.h"
#include "bindings/mpi/procedures.h"
#include "bindings/mpi/world.h"
#include "core/memory.h"
#include "core/module.h"

namespace tutti::mpi {

/// MPI_Session_init. All sessions and MPI_COMM_WORLD share the world.
struct Session {
  std::shared_ptr<ErrorHandler> handler;
};

namespace {

struct Process {
  std::mutex mutex;
  std::unique_ptr<World> world;
  int users = 0;  // sessions, and MPI_Init
  bool initialised = false, finalised = false;
  int level = MPI_THREAD_SINGLE;
  std::thread::id main;
};
Process& process() {
  static auto* instance = new Process;  // never destroyed: threads may call during exit
  return *instance;
}
std::atomic<World*> current{nullptr};

Handles<Session, MPI_Session>& sessions() {
  static auto* all = new Handles<Session, MPI_Session>;
  return *all;
}

Session& session_of(MPI_Session session) {
  Session* const found = sessions().find(session);
  if (found == nullptr) {
    fail(MPI_ERR_SESSION, "the session is MPI_SESSION_NULL, or has been finalised");
  }
  return *found;
}

/// With the lock. Another user of the world, which begins with the first one.
void enter(int level) {
  Process& p = process();
  if (p.users++ > 0) return;
  try {
    p.world = std::make_unique<World>(level == MPI_THREAD_MULTIPLE);
  } catch (...) {
    p.users = 0;
    throw;
  }
  current.store(p.world.get(), std::memory_order_release);
}

void leave() {
  Process& p = process();
  if (--p.users > 0) return;
  p.world->close();
  current.store(nullptr, std::memory_order_release);
  p.world.reset();
}

void initialise(int required, int* provided) {
  if (required < MPI_THREAD_SINGLE || required > MPI_THREAD_MULTIPLE) {
    fail(MPI_ERR_ARG, "{} is no level of threads", required);
  }
  Process& p = process();
  const std::lock_guard lock(p.mutex);
  if (p.initialised) fail(MPI_ERR_OTHER, "MPI is initialised already, or has been finalised");
  has_intel_values();  // a wrong value is said before anything needs it
  log_release("MPI's interface of Tutti " TUTTI_VERSION);
  p.level = required;
  p.main = std::this_thread::get_id();
  enter(p.users > 0 ? MPI_THREAD_MULTIPLE : required);
  comms().predefine(MPI_COMM_WORLD, p.world->all());
  comms().predefine(MPI_COMM_SELF, p.world->self());
  p.world->all()->handle = MPI_COMM_WORLD;
  p.world->self()->handle = MPI_COMM_SELF;
  p.initialised = true;
  if (provided != nullptr) *provided = required;
}

void finalise() {
  Process& p = process();
  if (!p.initialised || p.finalised) {
    fail(MPI_ERR_OTHER, "MPI is not initialised, or has been finalised already");
  }
  // The first thing that happens, by the standard: what hangs on MPI_COMM_SELF goes.
  comm_of(MPI_COMM_SELF).attributes.clear(bits_of(MPI_COMM_SELF));
  comm_of(MPI_COMM_WORLD).attributes.clear(bits_of(MPI_COMM_WORLD));
  const std::lock_guard lock(p.mutex);
  p.finalised = true;
  leave();
  comms().predefine(MPI_COMM_WORLD, nullptr);
  comms().predefine(MPI_COMM_SELF, nullptr);
}

int exit_code(int code) { return (code & 0xff) != 0 ? code & 0xff : 1; }

void copy_text(const std::string& text, char* to, int most, int* length) {
  const std::size_t n = std::min(text.size(), static_cast<std::size_t>(most) - 1);
  std::memcpy(to, text.data(), n);
  to[n] = '\0';
  *length = static_cast<int>(n);
}

}  // namespace

World* world_or_null() { return current.load(std::memory_order_acquire); }

World& world() {
  World* const w = world_or_null();
  if (w == nullptr) {
    fail(MPI_ERR_OTHER,
         "MPI is not initialised: call MPI_Init first (and nothing after MPI_Finalize)");
  }
  return *w;
}

std::shared_ptr<ErrorHandler>* handler_place(MPI_Session session) {
  Session* const found = sessions().find(session);
  return found == nullptr ? nullptr : &found->handler;
}

void abort_program(On on, bool everybody, int code, const std::string& why) {
  (void)on, (void)everybody;  // a job without some of its ranks is of no use to the others
  World* const w = world_or_null();
  const std::string who = w == nullptr ? std::string() : fmt::format("rank {}: ", w->mail().rank());
  const std::string line = fmt::format("tutti: {}{}\n", who, why);
  std::fflush(nullptr);
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  if (w != nullptr) {
    try {
      w->all()->tutti.abort(why);
      w->mail().communicator().abort(why);
    } catch (...) {  // it ends all the same
    }
  }
  _exit(exit_code(code));
}

int MPI_Init(int* argc, char*** argv) {
  (void)argc, (void)argv;
  return guarded("MPI_Init", {}, [&] { initialise(MPI_THREAD_SINGLE, nullptr); });
}
int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  (void)argc, (void)argv;
  return guarded("MPI_Init_thread", {}, [&] { initialise(required, provided); });
}
int MPI_Finalize() {
  return guarded("MPI_Finalize", {}, [] { finalise(); });
}
int MPI_Initialized(int* flag) {
  *flag = process().initialised ? 1 : 0;
  return MPI_SUCCESS;
}
int MPI_Finalized(int* flag) {
  *flag = process().finalised ? 1 : 0;
  return MPI_SUCCESS;
}
int MPI_Query_thread(int* provided) {
  return guarded("MPI_Query_thread", {}, [&] {
    world();
    *provided = process().level;
  });
}
int MPI_Is_thread_main(int* flag) {
  return guarded("MPI_Is_thread_main", {}, [&] {
    world();
    *flag = process().main == std::this_thread::get_id() ? 1 : 0;
  });
}
int MPI_Abort(MPI_Comm comm, int errorcode) {
  abort_program(comm, false, errorcode, fmt::format("MPI_Abort with error code {}", errorcode));
}

int MPI_Session_init(MPI_Info info, MPI_Errhandler errhandler, MPI_Session* session) {
  return guarded("MPI_Session_init", {}, [&] {
    (void)info;
    *session = MPI_SESSION_NULL;
    auto handler = error_handlers().share(errhandler);
    if (!handler) fail(MPI_ERR_ERRHANDLER, "the error handler is none, or has been freed");
    Process& p = process();
    const std::lock_guard lock(p.mutex);
    enter(MPI_THREAD_MULTIPLE);
    *session = sessions().add(std::make_shared<Session>(Session{std::move(handler)}));
  });
}
int MPI_Session_finalize(MPI_Session* session) {
  return guarded("MPI_Session_finalize", *session, [&] {
    session_of(*session);
    sessions().remove(*session);
    *session = MPI_SESSION_NULL;
    const std::lock_guard lock(process().mutex);
    leave();
  });
}
namespace {
constexpr const char* kSets[] = {"mpi://WORLD", "mpi://SELF"};
}
int MPI_Session_get_num_psets(MPI_Session session, MPI_Info info, int* npset_names) {
  return guarded("MPI_Session_get_num_psets", session, [&] {
    (void)info;
    session_of(session);
    *npset_names = 2;
  });
}
int MPI_Session_get_nth_pset(MPI_Session session, MPI_Info info, int n, int* pset_len,
                             char* pset_name) {
  return guarded("MPI_Session_get_nth_pset", session, [&] {
    (void)info;
    session_of(session);
    if (n < 0 || n > 1) fail(MPI_ERR_ARG, "there are 2 sets of processes, but no number {}", n);
    const int needs = static_cast<int>(std::strlen(kSets[n])) + 1;
    if (*pset_len > 0) {
      int length = 0;
      copy_text(kSets[n], pset_name, std::min(*pset_len, needs), &length);
    }
    *pset_len = needs;
  });
}
int MPI_Session_get_info(MPI_Session session, MPI_Info* info_used) {
  return guarded("MPI_Session_get_info", session, [&] {
    session_of(session);
    *info_used =
        infos().add(std::make_shared<Info>(Info::Entries{{"thread_level", "MPI_THREAD_MULTIPLE"}}));
  });
}
int MPI_Session_get_pset_info(MPI_Session session, const char* pset_name, MPI_Info* info) {
  return guarded("MPI_Session_get_pset_info", session, [&] {
    session_of(session);
    const bool all = std::strcmp(pset_name, kSets[0]) == 0;
    if (!all && std::strcmp(pset_name, kSets[1]) != 0) {
      fail(MPI_ERR_ARG, "there is no set of processes \"{}\"", pset_name);
    }
    const std::string size = all ? std::to_string(world().all()->size()) : "1";
    *info = infos().add(std::make_shared<Info>(Info::Entries{{"mpi_size", size}}));
  });
}
int MPI_Group_from_session_pset(MPI_Session session, const char* pset_name, MPI_Group* newgroup) {
  return guarded("MPI_Group_from_session_pset", session, [&] {
    session_of(session);
    const std::string name = pset_name;
    if (name == kSets[0]) {
      *newgroup = groups().add(world().all()->group);
    } else if (name == kSets[1]) {
      *newgroup = groups().add(world().self()->group);
    } else {
      fail(MPI_ERR_ARG, "there is no set of processes \"{}\"", name);
    }
  });
}

double MPI_Wtime() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}
double MPI_Wtick() { return 1e-9; }

int MPI_Get_hw_resource_info(MPI_Info* hw_info) {
  return guarded("MPI_Get_hw_resource_info", {},
                 [&] { *hw_info = infos().add(std::make_shared<Info>()); });
}
int MPI_Abi_get_info(MPI_Info* info) {
  return guarded("MPI_Abi_get_info", {}, [&] {
    *info = infos().add(std::make_shared<Info>(
        Info::Entries{{"mpi_aint_size", "8"}, {"mpi_count_size", "8"}, {"mpi_offset_size", "8"}}));
  });
}

int MPI_Get_version(int* version, int* subversion) {
  *version = MPI_VERSION;
  *subversion = MPI_SUBVERSION;
  return MPI_SUCCESS;
}
int MPI_Abi_get_version(int* abi_major, int* abi_minor) {
  *abi_major = MPI_ABI_VERSION;
  *abi_minor = MPI_ABI_SUBVERSION;
  return MPI_SUCCESS;
}
int MPI_Get_library_version(char* version, int* resultlen) {
#ifdef TUTTI_MPI_OPENMPI
  constexpr const char* kText = "Tutti " TUTTI_VERSION " with the binary interface of Open MPI";
#else
  constexpr const char* kText = "Tutti " TUTTI_VERSION;
#endif
  copy_text(kText, version, MPI_MAX_LIBRARY_VERSION_STRING, resultlen);
  return MPI_SUCCESS;
}
int MPI_Get_processor_name(char* name, int* resultlen) {
  return guarded("MPI_Get_processor_name", {}, [&] {
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    copy_text(host, name, MPI_MAX_PROCESSOR_NAME, resultlen);
  });
}
int MPI_Pcontrol(const int level, ...) {
  (void)level;
  return MPI_SUCCESS;
}

int MPI_Alloc_mem(MPI_Aint size, MPI_Info info, void* baseptr) {
  return guarded("MPI_Alloc_mem", {}, [&] {
    (void)info;
    if (size < 0) fail(MPI_ERR_SIZE, "the size is {} bytes, but has to be 0 or more", size);
    void* const memory = size == 0 ? nullptr : allocate(static_cast<std::size_t>(size));
    std::memcpy(baseptr, &memory, sizeof memory);
  });
}
int MPI_Free_mem(void* base) {
  return guarded("MPI_Free_mem", {}, [&] { deallocate(base); });
}

}  // namespace tutti::mpi
