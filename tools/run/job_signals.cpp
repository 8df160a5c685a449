// See job_signals.h.
#include "tools/run/job_signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "core/error.h"

namespace tutti {
namespace {

constexpr std::array kEndingSignals{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr std::array kOtherSignals{SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT};

}  // namespace

JobSignals::JobSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigemptyset(&stop_set_);
  sigaddset(&set, SIGCHLD);
  const auto add = [](int number, sigset_t& to) {
    // A signal that is ignored, as nohup does it, stays so, here and in the ranks.
    struct sigaction now {};
    if (::sigaction(number, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) {
      sigaddset(&to, number);
    }
  };
  for (const int number : kEndingSignals) add(number, set);
  for (const int number : kOtherSignals) add(number, set);
  add(SIGTSTP, stop_set_);
  ::signal(SIGCHLD, SIG_DFL);
  ::signal(SIGPIPE, SIG_IGN);
  if (::sigprocmask(SIG_BLOCK, &set, &mask_before_) != 0 ||
      ::sigprocmask(SIG_BLOCK, &stop_set_, nullptr) != 0) {
    throw_system_error("sigprocmask");
  }
  signals_ = FileDescriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  stop_ = FileDescriptor(::signalfd(-1, &stop_set_, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals_ || !stop_) throw_system_error("signalfd");
}

void JobSignals::add_polls(std::vector<pollfd>& polls) const {
  polls.push_back({signals_.fd(), POLLIN, 0});
  polls.push_back({stop_.fd(), POLLIN, 0});
}

std::optional<int> JobSignals::next() {
  signalfd_siginfo info;
  if (::read(signals_.fd(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

bool JobSignals::stop_wanted() const {
  pollfd entry{stop_.fd(), POLLIN, 0};
  return ::poll(&entry, 1, 0) > 0;
}

void JobSignals::stop() const {
  ::sigprocmask(SIG_UNBLOCK, &stop_set_, nullptr);
  ::sigprocmask(SIG_BLOCK, &stop_set_, nullptr);
}

bool JobSignals::ends(int number) {
  return std::find(kEndingSignals.begin(), kEndingSignals.end(), number) != kEndingSignals.end();
}

}  // namespace tutti
