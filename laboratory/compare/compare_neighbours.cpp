// See compare_neighbours.h.
#include "laboratory/compare/compare_neighbours.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "core/error.h"

namespace tutti::compare {
namespace {

/// Of the child. It allocates nothing and returns never.
[[noreturn]] void be_busy(pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NAME, "tutti-neighbour");
  if (getppid() != parent) _exit(0);  // it has died before
  setsid();
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (volatile bool forever = true; forever;) {
  }
  _exit(0);
}

void end_all(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) kill(pid, SIGKILL);
  for (const pid_t pid : pids) waitpid(pid, nullptr, 0);
}

}  // namespace

Neighbours::Neighbours(int count) {
  const pid_t own = getpid();
  for (int i = 0; i < count; ++i) {
    const pid_t pid = fork();
    if (pid == 0) be_busy(own);
    if (pid < 0) {
      const int error = errno;
      end_all(pids_);
      throw_system_error("cannot start a neighbour", error);
    }
    pids_.push_back(pid);
  }
}

Neighbours::~Neighbours() { end_all(pids_); }

}  // namespace tutti::compare
