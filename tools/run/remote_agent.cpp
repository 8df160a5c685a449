// See remote_agent.h. Commands come through standard input, events leave through standard output.
// When the input ends, or the launcher falls silent, this process ends, and the keeper kills the
// ranks: nothing is left where a connection breaks.
#include "tools/run/remote_agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "tools/run/agent.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

class RemoteAgent {
 public:
  RemoteAgent() : agent_(take_signals(), [this](Message&& event) { tell(event); }) {
    for (const int fd : {0, 1}) ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) | O_NONBLOCK);
    pending_ = agent_greeting();
  }

  int run() {
    while (true) {
      write_events();
      if (broken_ || (opened_ && agent_.over() && pending_.empty())) return 0;
      wait_for_something();
      if (!read_commands()) return 1;
      signalfd_siginfo info;
      while (::read(signals_.fd(), &info, sizeof info) == sizeof info) {
      }
      agent_.reap();
      agent_.serve();
      if (Clock::now() - sent_ >= kAliveEvery) tell({.kind = MessageKind::alive, .text = ""});
    }
  }

 private:
  /// Returns the mask before, which the ranks get.
  sigset_t take_signals() {
    sigset_t child, before;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    ::signal(SIGCHLD, SIG_DFL);
    ::signal(SIGPIPE, SIG_IGN);
    if (::sigprocmask(SIG_BLOCK, &child, &before) != 0) throw_system_error("sigprocmask");
    signals_ = FileDescriptor(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_) throw_system_error("signalfd");
    return before;
  }

  void tell(const Message& event) {
    pending_ += encode(event);
    sent_ = Clock::now();
  }

  void wait_for_something() {
    polls_.assign({{0, POLLIN, 0}, {signals_.fd(), POLLIN, 0}});
    if (!pending_.empty()) polls_.push_back({1, POLLOUT, 0});
    agent_.add_polls(polls_);
    auto wake = std::min(agent_.next_wake(), sent_ + kAliveEvery);
    if (!stopped_) wake = std::min(wake, heard_ + kSilence);
    ::poll(polls_.data(), polls_.size(), milliseconds_until(wake));
  }

  /// False once nobody gives commands any more.
  bool read_commands() {
    std::array<char, 64 << 10> buffer;
    while (true) {
      const ssize_t got = ::read(0, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) break;
      if (got <= 0) return false;
      heard_ = Clock::now();
      reader_.add(std::string_view(buffer.data(), static_cast<std::size_t>(got)));
    }
    try {
      while (const auto command = reader_.next()) obey(*command);
    } catch (const Error& error) {
      tell({.kind = MessageKind::lost, .text = error.what()});
      write_events();
      throw;
    }
    return stopped_ || Clock::now() - heard_ < kSilence;
  }

  void obey(const Message& command) {
    if (command.kind == MessageKind::alive) return;
    if (command.kind == MessageKind::job && !opened_) return open(decode_job(command.text));
    if (!opened_ || command.kind == MessageKind::job) {
      throw Error(ErrorCode::mismatch, "run-agent: an unexpected command came");
    }
    // A launcher that has stopped says nothing.
    if (command.kind == MessageKind::signal && command.number == SIGTSTP) stopped_ = true;
    if (command.kind == MessageKind::signal && command.number == SIGCONT) stopped_ = false;
    agent_.obey(command);
  }

  void open(const JobDescription& job) {
    if (!job.folder.empty() && ::chdir(job.folder.c_str()) != 0) {
      throw Error(ErrorCode::system, fmt::format("cannot go to the working directory {}: {}",
                                                 job.folder, std::strerror(errno)));
    }
    for (const std::string& variable : job.variables) {
      const std::size_t equals = variable.find('=');
      if (equals == std::string::npos) continue;
      ::setenv(variable.substr(0, equals).c_str(), variable.substr(equals + 1).c_str(), 1);
    }
    opened_ = true;
    agent_.open(job, true, {true, true});
  }

  void write_events() {
    std::size_t written = 0;
    while (written < pending_.size()) {
      const ssize_t count = ::write(1, pending_.data() + written, pending_.size() - written);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno != EAGAIN) broken_ = true;
      if (count < 0) break;
      written += static_cast<std::size_t>(count);
    }
    pending_.erase(0, written);
  }

  FileDescriptor signals_;
  Agent agent_;
  MessageReader reader_;
  std::string pending_;  // events
  bool opened_ = false, stopped_ = false, broken_ = false;
  std::vector<pollfd> polls_;
  Clock::time_point heard_ = Clock::now(), sent_ = heard_;
};

}  // namespace

int run_remote_agent() {
  try {
    return RemoteAgent().run();
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

}  // namespace tutti
