// See launcher.h.
#include "tools/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "bootstrap/rendezvous_protocol.h"
#include "bootstrap/rendezvous_server.h"
#include "bootstrap/unique_id.h"
#include "core/error.h"
#include "tools/spawn.h"
#include "tools/tagged_output.h"
#include "tools/terminal_input.h"
#include "transport/socket.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kForOwnReports = 2s;  // after a rank failed, before the others are asked to end
constexpr auto kForCleanUp = 3s;     // after they were asked, before they are killed
constexpr auto kAfterSignal = 5s;    // after the user's signal, before the ranks are killed
constexpr auto kForOrphans = 1s;     // what a rank leaves behind in its process group may go on
constexpr auto kOrphanCheck = 20ms;

constexpr int kTimedOut = 124, kCannotRun = 126, kNotFound = 127;  // as timeout(1) and shells do

constexpr std::array kEndingSignals{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
constexpr std::array kOtherSignals{SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT};

template <typename... Arguments>
void report(fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  // One write, so that it is not mixed with what the ranks write.
  const std::string line =
      "tutti run: " + fmt::format(format, std::forward<Arguments>(arguments)...) + "\n";
  [[maybe_unused]] const ssize_t written = ::write(2, line.data(), line.size());
}

class Job {
 public:
  explicit Job(const JobOptions& options)
      : options_(options), ranks_(static_cast<std::size_t>(options.ranks)) {
    take_signals();
    if (options.tag) {
      out_.emplace(options.ranks, 1);
      err_.emplace(options.ranks, 2);
    }
  }

  int run() {
    start();
    while (!over()) {
      wait_for_something();
      handle_signals();
      reap();
      keep_time();
      if (out_) out_->serve();
      if (err_) err_->serve();
      input_.serve();
    }
    if (options_.keep_going && !ending_) conclude();
    return status_;
  }

 private:
  struct Rank {
    pid_t pid = -1;
    bool runs = false;
    bool has_group = false;  // processes of its group may be left
    Clock::time_point ended;
    int status = 0;  // as waitpid() has it
  };

  // --- start ---

  void take_signals() {
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

  void start() {
    keeper_ = std::make_unique<Keeper>();  // while there is one thread
    const std::string id = to_string(serve_rendezvous(Rounds::many));
    std::vector<cpu_set_t> cores;
    if (options_.bind_cores) {
      cores = choose_cores(options_.ranks);
      if (cores.empty()) report("fewer cores than ranks: --bind core has no effect");
    }
    for (int rank = 0; rank < options_.ranks; ++rank) {
      SpawnOptions spawning;
      spawning.program = options_.program;
      spawning.environment = environment_of(rank, id);
      spawning.signal_mask = mask_before_;
      if (!cores.empty()) spawning.cpus = cores[static_cast<std::size_t>(rank)];
      FileDescriptor input, out, err;
      if (rank == 0 && TerminalInput::needed()) input = input_.open_pipe();
      if (out_) out = out_->open_pipe(rank);
      if (err_) err = err_->open_pipe(rank);
      if (rank == 0) spawning.stdin_fd = input ? input.fd() : 0;
      if (out) spawning.stdout_fd = out.fd();
      if (err) spawning.stderr_fd = err.fd();
      const Spawned spawned = spawn(spawning);
      if (spawned.pid < 0) return give_up(rank, spawned.error);
      keeper_->add(spawned.pid);
      ranks_[static_cast<std::size_t>(rank)] = {spawned.pid, true, true, {}, 0};
    }
    if (options_.timeout > 0ns) time_limit_ = deadline_after(options_.timeout);
  }

  std::vector<std::string> environment_of(int rank, const std::string& id) const {
    const std::array<std::pair<std::string, std::string>, 3> ours{
        {{"TUTTI_RANK=", std::to_string(rank)},
         {"TUTTI_SIZE=", std::to_string(options_.ranks)},
         {"TUTTI_UNIQUE_ID=", id}}};
    std::vector<std::string> result;
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const std::string_view text = *entry;
      const bool is_ours = std::any_of(ours.begin(), ours.end(), [&](const auto& variable) {
        return text.starts_with(variable.first);
      });
      if (!is_ours) result.emplace_back(text);
    }
    for (const auto& [name, value] : ours) result.push_back(name + value);
    return result;
  }

  void give_up(int rank, int error) {
    const std::string& program = options_.program.front();
    if (error == ENOENT) {
      report("cannot run '{}': there is no such program (or not the interpreter that it names)",
             program);
    } else if (error == EACCES || error == ENOEXEC) {
      report("cannot run '{}': it is not executable ({})", program, std::strerror(error));
    } else {
      report("cannot start rank {} of '{}': {}", rank, program, std::strerror(error));
    }
    status_ = error == ENOENT ? kNotFound : kCannotRun;
    ending_ = true;
    kill_all(SIGKILL);
  }

  // --- the loop ---

  bool over() const {
    const bool all_gone = std::none_of(
        ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.runs || rank.has_group; });
    if (!all_gone) return false;
    return no_more_output_ || ((!out_ || out_->all_written()) && (!err_ || err_->all_written()));
  }

  void wait_for_something() {
    Clock::time_point wake = std::min({time_limit_, terminate_at_, kill_at_});
    bool any_runs = false;
    for (const Rank& rank : ranks_) {
      any_runs |= rank.runs;
      if (!rank.runs && rank.has_group) wake = std::min(wake, Clock::now() + kOrphanCheck);
    }
    polls_.assign({{signals_.fd(), POLLIN, 0}, {stop_.fd(), POLLIN, 0}});
    if (out_) out_->add_polls(polls_);
    if (err_) err_->add_polls(polls_);
    if (any_runs) input_.add_polls(polls_);
    ::poll(polls_.data(), polls_.size(), milliseconds_until(wake));
  }

  /// The ranks stop, then this process. The signal stays pending until then, so that a SIGCONT that
  /// comes in between takes it away.
  void stop_when_asked() {
    pollfd entry{stop_.fd(), POLLIN, 0};
    if (::poll(&entry, 1, 0) <= 0) return;
    kill_all(SIGTSTP);
    ::sigprocmask(SIG_UNBLOCK, &stop_set_, nullptr);
    ::sigprocmask(SIG_BLOCK, &stop_set_, nullptr);
  }

  void handle_signals() {
    stop_when_asked();
    signalfd_siginfo info;
    while (::read(signals_.fd(), &info, sizeof info) == sizeof info) {
      const int number = static_cast<int>(info.ssi_signo);
      if (number == SIGCHLD) continue;
      const bool ends =
          std::find(kEndingSignals.begin(), kEndingSignals.end(), number) != kEndingSignals.end();
      if (!ends) {
        kill_all(number);
      } else if (ended_by_user_) {
        kill_at_ = Clock::now();
        no_more_output_ = true;
      } else {
        ended_by_user_ = true;
        if (!ending_) status_ = 128 + number;
        ending_ = true;
        kill_all(number);
        terminate_at_ = Clock::time_point::max();
        kill_at_ = std::min(kill_at_, Clock::now() + kAfterSignal);
      }
    }
  }

  void reap() {
    std::optional<int> first;  // rank that failed
    int status = 0;
    pid_t pid = 0;
    while ((pid = ::waitpid(-1, &status, WNOHANG)) > 0) {
      const auto found = std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
        return rank.runs && rank.pid == pid;
      });
      if (found == ranks_.end()) continue;  // the keeper, or an orphan
      found->runs = false;
      found->ended = Clock::now();
      found->status = status;
      const bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
      if (!failed || ending_) continue;
      const int rank = static_cast<int>(found - ranks_.begin());
      if (options_.keep_going) {
        report("{}", failure_of(rank));
        failed_.push_back(rank);
        continue;
      }
      // Of failures seen together, a death by a signal is more likely the cause.
      if (!first || (WIFSIGNALED(status) && WIFEXITED(rank_at(*first).status))) first = rank;
    }
    if (first) begin_to_end(*first);
    for (Rank& rank : ranks_) look_for_orphans(rank);
    const bool all_gone = std::none_of(
        ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.runs || rank.has_group; });
    if (all_gone && out_) out_->finish();
    if (all_gone && err_) err_->finish();
  }

  const Rank& rank_at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  static int status_of(const Rank& rank) {
    return WIFSIGNALED(rank.status) ? 128 + WTERMSIG(rank.status) : WEXITSTATUS(rank.status);
  }

  std::string failure_of(int rank) const {
    const Rank& failed = rank_at(rank);
    if (!WIFSIGNALED(failed.status)) {
      return fmt::format("rank {} (pid {}) exited with status {}", rank, failed.pid,
                         WEXITSTATUS(failed.status));
    }
    const int number = WTERMSIG(failed.status);
    return fmt::format("rank {} (pid {}) was killed by signal {} ({})", rank, failed.pid, number,
                       ::strsignal(number));
  }

  /// Rank `rank` failed: the job ends with its status.
  void begin_to_end(int rank) {
    const bool others =
        std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& other) { return other.runs; });
    report("{}{}", failure_of(rank), others ? "; ending the other ranks" : "");
    status_ = status_of(rank_at(rank));
    ending_ = true;
    terminate_at_ = Clock::now() + kForOwnReports;
    kill_at_ = terminate_at_ + kForCleanUp;
  }

  /// With --keep-going all ranks have ended by themselves, some of them perhaps too early. Who was
  /// killed could not help it, and the others may have gone on without it; who exits says itself
  /// whether its work is done.
  void conclude() {
    if (failed_.empty()) return;
    const auto exited = std::find_if(failed_.begin(), failed_.end(),
                                     [&](int rank) { return WIFEXITED(rank_at(rank).status); });
    const std::size_t done = ranks_.size() - failed_.size();
    if (exited != failed_.end()) {
      status_ = status_of(rank_at(*exited));
    } else if (done == 0) {
      status_ = status_of(rank_at(failed_.front()));
    }
    std::sort(failed_.begin(), failed_.end());
    report("{} of {} ranks ended with status 0; {} did not", done, ranks_.size(),
           wire::list_ranks(failed_));
  }

  /// A rank's process has ended; ends what it left behind. An empty group's number may be used
  /// again, so it is not signalled any more.
  void look_for_orphans(Rank& rank) {
    if (rank.runs || !rank.has_group) return;
    const bool empty = ::kill(-rank.pid, 0) != 0 && errno == ESRCH;
    if (!empty && Clock::now() - rank.ended < kForOrphans && kill_at_ > Clock::now()) return;
    if (!empty) ::kill(-rank.pid, SIGKILL);
    rank.has_group = false;
    keeper_->remove(rank.pid);
  }

  void keep_time() {
    const auto now = Clock::now();
    if (now >= time_limit_) {
      time_limit_ = Clock::time_point::max();
      if (!ending_) {
        std::vector<int> running;
        for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
          if (ranks_[rank].runs) running.push_back(static_cast<int>(rank));
        }
        if (running.empty()) {
          no_more_output_ = true;  // only the reader of our output is late
          return;
        }
        report("{} still ran after {} s (--timeout); ending the job", wire::list_ranks(running),
               std::chrono::duration<double>(options_.timeout).count());
        status_ = kTimedOut;
        ending_ = true;
        terminate_at_ = now;
        kill_at_ = now + kForCleanUp;
      }
    }
    if (now >= terminate_at_) {
      terminate_at_ = Clock::time_point::max();
      kill_all(SIGTERM);
      kill_all(SIGCONT);  // a stopped process would not notice
    }
    if (now >= kill_at_) {
      kill_at_ = now + kAfterSignal;
      kill_all(SIGKILL);
    }
  }

  void kill_all(int number) {
    for (const Rank& rank : ranks_) {
      if (rank.has_group) ::kill(-rank.pid, number);
    }
  }

  const JobOptions& options_;
  std::vector<Rank> ranks_;
  std::unique_ptr<Keeper> keeper_;
  FileDescriptor signals_;
  FileDescriptor stop_;  // tells of a pending SIGTSTP; never read
  sigset_t mask_before_{}, stop_set_{};
  std::optional<TaggedStream> out_, err_;
  TerminalInput input_;
  std::vector<pollfd> polls_;

  int status_ = 0;
  std::vector<int> failed_;     // with keep_going: ranks, as they failed
  bool ending_ = false;         // status_ is final
  bool ended_by_user_ = false;  // by a signal; another one kills
  bool no_more_output_ = false;
  Clock::time_point time_limit_ = Clock::time_point::max();
  Clock::time_point terminate_at_ = Clock::time_point::max();
  Clock::time_point kill_at_ = Clock::time_point::max();
};

}  // namespace

int run_job(const JobOptions& options) {
  // Descriptors 0 to 2 must not become those of pipes.
  for (int fd = 0; fd < 3; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) != fd) {
      throw_system_error("opening /dev/null");
    }
  }
  // Processes that lose their parent become ours: they are reaped, and their group is seen to end.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  return Job(options).run();
}

}  // namespace tutti
