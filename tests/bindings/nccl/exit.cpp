// A process that exits while its communicators are in progress: it ends soon, with 0, and none of
// the threads that worked for them is left while the library is taken down.
//
//     nccl_exit handover | rendezvous | collective | peer
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "bindings/nccl/nccl.h"

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

std::ptrdiff_t threads_at_first = 0;
Clock::time_point exit_began;

/// All but the one that sleeps until the process ends, by which others learn of that.
std::ptrdiff_t threads() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::count_if(begin(tasks), end(tasks), [](const auto& task) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    return name != "tutti-life";
  });
}

/// Runs after everything that a library does when the process exits.
__attribute__((destructor)) void nothing_is_left() {
  if (exit_began == Clock::time_point{}) return;
  const auto took = Clock::now() - exit_began;
  for (int look = 0; look < 100 && threads() > threads_at_first; ++look) usleep(1000);
  if (threads() <= threads_at_first && took < 5s) return;
  std::fprintf(stderr, "%td threads of %td, after %.1f s\n", threads(), threads_at_first,
               std::chrono::duration<double>(took).count());
  _exit(1);
}

void expect(ncclResult_t result, ncclResult_t expected) {
  if (result == expected) return;
  std::fprintf(stderr, "%d, not %d: %s\n", result, expected, ncclGetLastError(nullptr));
  _exit(1);
}

/// Rank `rank` of 2, in progress.
ncclComm_t begin_init(const ncclUniqueId& id, int rank) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  expect(ncclCommInitRankConfig(&comm, 2, id, rank, &config), ncclInProgress);
  return comm;
}

void settle(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  while (state == ncclInProgress) expect(ncclCommGetAsyncError(comm, &state), ncclSuccess);
  expect(state, ncclSuccess);
}

/// An id with its rendezvous in another process, which ends with this one.
ncclUniqueId id_of_another_process() {
  int made[2];
  int ended[2];
  if (pipe(made) != 0 || pipe(ended) != 0) std::abort();
  ncclUniqueId id{};
  if (fork() == 0) {
    close(ended[1]);
    expect(ncclGetUniqueId(&id), ncclSuccess);
    if (write(made[1], &id, sizeof id) != sizeof id) std::abort();
    char c = 0;
    while (read(ended[0], &c, 1) > 0) continue;
    std::exit(0);
  }
  if (read(made[0], &id, sizeof id) != sizeof id) std::abort();
  return id;
}

/// Rank 0, which is there when rank 1 exits: it is told.
void outlive(const ncclUniqueId& id, pid_t rank1) {
  ncclComm_t comm = nullptr;
  expect(ncclCommInitRank(&comm, 2, id, 0), ncclSuccess);
  float x = 0;
  expect(ncclRecv(&x, 1, ncclFloat32, 1, comm, nullptr), ncclRemoteError);
  const std::string why = ncclGetLastError(comm);
  int status = 0;
  if (waitpid(rank1, &status, 0) == rank1 && status == 0 && why.starts_with("rank 1 exits")) return;
  std::fprintf(stderr, "%s; rank 1 ended with status %#x\n", why.c_str(), status);
  _exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  ncclUniqueId id{};
  if (mode == "rendezvous" || mode == "peer") id = id_of_another_process();
  if (mode == "peer") {
    const pid_t rank1 = fork();
    if (rank1 != 0) {
      outlive(id, rank1);
      return 0;
    }
  }
  std::thread([] {}).join();  // a sanitizer has a thread of its own from the first one on
  usleep(10'000);             // the kernel lists a thread for a moment after it was joined
  threads_at_first = threads();
  if (mode == "rendezvous") {  // rank 1 never comes
    begin_init(id, 0);
  } else if (mode == "handover") {  // nor does rank 0, which would hand out the id
    setenv("NCCL_COMM_ID", "nobody has this one", 1);
    expect(ncclGetUniqueId(&id), ncclSuccess);
    begin_init(id, 1);
  } else if (mode == "collective") {
    expect(ncclGetUniqueId(&id), ncclSuccess);
    const ncclComm_t comms[] = {begin_init(id, 0), begin_init(id, 1)};
    for (const ncclComm_t comm : comms) settle(comm);
    static float x = 1;  // rank 1 does not take part
    expect(ncclAllReduce(&x, &x, 1, ncclFloat32, ncclSum, comms[0], nullptr), ncclInProgress);
  } else if (mode == "peer") {
    const ncclComm_t comm = begin_init(id, 1);
    settle(comm);
    static float x = 0;
    expect(ncclRecv(&x, 1, ncclFloat32, 0, comm, nullptr), ncclInProgress);
  } else {
    return 2;
  }
  usleep(50'000);  // for the thread to be where it waits; nothing depends on it
  exit_began = Clock::now();
  return 0;
}
