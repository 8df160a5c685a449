// Starting the processes of a job: the ranks, each in a process group of its own, and the keeper,
// which kills the rest of the job on this host if the launcher (or the agent) is killed.
#pragma once

#include <sched.h>
#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/rank_processes.h"
#include "transport/sockets/socket.h"

namespace tutti {

/// A child that waits for the end of the launcher, however that comes, and then kills the process
/// groups that it has been told, and all processes that name the ranks that it has been told.
/// Signals to the launcher's group do not reach it.
class Keeper {
 public:
  Keeper();   // forks: call it while this process has one thread
  ~Keeper();  // lets it go, and waits for it
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;

  /// In a child that becomes a program: from now on its process group is kept. (Its parent could
  /// not say so in time: the program may have started others by then.)
  void keep_this_group() const;
  void remove(pid_t group) const;
  /// These ranks' processes, too, until remove_ranks().
  void keep_ranks(const RanksHere& ranks) const;
  void remove_ranks() const;
  pid_t pid() const { return pid_; }

 private:
  struct Word;
  [[noreturn]] static void keep(int pipe_fd, int other_end);
  void tell(const Word& word) const;

  FileDescriptor pipe_;
  pid_t pid_ = -1;
};

struct SpawnOptions {
  std::vector<std::string> program;
  std::vector<std::string> environment;  // "NAME=value"; replaces the launcher's
  int stdin_fd = -1;                     // -1: nothing to read
  int stdout_fd = 1;
  int stderr_fd = 2;
  int passed_fd = -1;  // one more, which the program finds by the same number; -1: none
  std::optional<cpu_set_t> cpus;
  sigset_t signal_mask{};          // of the new process
  bool own_session = false;        // without the terminal, so it cannot ask there
  const Keeper* keeper = nullptr;  // kills the process group if this process is killed
};

struct Spawned {
  pid_t pid = -1;  // also the process group
  int error = 0;   // errno, where it could not be started
};

/// Where to read, and where to write. Programs that are started do not get them.
std::pair<FileDescriptor, FileDescriptor> close_on_exec_pipe();

/// From now on this process may have as many descriptors as the system allows it: a launcher has
/// several for each rank. What it spawns has the limit from before.
void allow_many_descriptors();

/// Starts one process, and returns once its program runs (or cannot). The process gets SIGKILL when
/// the calling thread ends.
Spawned spawn(const SpawnOptions& options);

/// `word` as one word of a shell's command line.
std::string shell_word(const std::string& word);

/// The processors of `count` different cores that this process may use; empty if there are fewer
/// cores. A core's hardware threads belong together.
std::vector<cpu_set_t> choose_cores(int count);

}  // namespace tutti
