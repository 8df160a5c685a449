// See launcher.h.
#include "tools/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bootstrap/rendezvous_protocol.h"
#include "bootstrap/rendezvous_server.h"
#include "bootstrap/unique_id.h"
#include "core/error.h"
#include "tools/agent.h"
#include "tools/job_hosts.h"
#include "tools/job_report.h"
#include "tools/job_signals.h"
#include "tools/job_streams.h"
#include "tools/rank_input.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kForOwnReports = 2s;  // after a rank failed, before the others are asked to end
constexpr auto kForCleanUp = 3s;     // after they were asked, before they are killed
constexpr auto kAfterSignal = 5s;    // after the user's signal, before the ranks are killed
constexpr auto kAfterKill = 5s;      // after that, before hosts that say nothing are left alone
constexpr auto kTogether = 200ms;    // failures on several hosts that may have one cause

class LaunchedJob {
 public:
  explicit LaunchedJob(const JobOptions& options)
      : options_(options),
        job_(options.job),
        streams_(job_.hosts.size()),
        agent_(signals_.mask_before(), [this](Message&& event) { hear(event); }) {
    job_.size = 0;
    for (const HostShare& host : job_.hosts) {
      hosts_.push_back({host.name, false, false});
      ranks_.insert(ranks_.end(), static_cast<std::size_t>(host.ranks), Rank{host.number});
      job_.size += host.ranks;
    }
    if (job_.elastic) {
      std::vector<int> host_of;
      for (const Rank& rank : ranks_) host_of.push_back(rank.host);
      elastic_.emplace(options_.elastic, std::move(host_of),
                       [this](const Message& command) { agent_.obey(command); });
    }
  }

  int run() {
    open();
    while (start_if_ready(), say_no_more_if_done(), !over()) {
      wait_for_something();
      handle_signals();
      agent_.reap();
      agent_.serve();
      if (elastic_) elastic_->serve();
      if (elastic_ && elastic_->is_done_without_the_rest() && !ending_) end_the_rest();
      if (first_ && !ending_ && Clock::now() >= judge_at_) begin_to_end(*first_);
      keep_time();
      streams_.serve(agent_, may_read_input());
    }
    if ((options_.keep_going || elastic_) && !ending_) conclude();
    return status_ == 0 && streams_.has_lost_output() ? kOutputLost : status_;
  }

 private:
  struct Rank {
    int host = 0;
    pid_t pid = -1;
    bool runs = false;
    int status = 0;  // as waitpid() has it
  };
  struct Failed {
    int rank, status;
  };
  struct HostState {
    std::string name;
    bool answered = false, gone = false;
  };

  // --- start ---

  void open() {
    if (options_.timeout > 0ns) time_limit_ = deadline_after(options_.timeout);
    const auto here = std::ranges::find_if(
        job_.hosts, [](const HostShare& host) { return is_this_host(host.name); });
    const bool has_here = here != job_.hosts.end();
    if (has_here) here_ = static_cast<std::size_t>(here->number);
    several_ = job_.hosts.size() > 1 || !has_here;
    const bool passes_output = several_ || job_.tag;
    const bool rank_0_is_here = has_here && here->first_rank == 0;
    passes_input_ = !rank_0_is_here || InputReader::is_terminal();
    job_.id = to_string(
        serve_rendezvous(Rounds::many, several_ ? meeting_place_for(job_.hosts) : MeetingPlace()));
    if (has_here) std::rotate(job_.hosts.begin(), here, here + 1);
    agent_.open(job_, has_here, {passes_input_, passes_output});
  }

  /// No rank starts before all hosts have answered, and none if one of them is in trouble.
  void start_if_ready() {
    if (started_ || ending_ || answered_ < hosts_.size()) return;
    started_ = troubles_ == 0;
    ending_ = !started_;
    if (ending_) {
      status_ = kHostLost;
    } else {
      tell(MessageKind::start);
      if (elastic_) elastic_->start();
    }
  }

  /// Hosts without a rank stay in an elastic job until then.
  void say_no_more_if_done() {
    if (!elastic_ || !started_ || !more_may_start_ || !(ending_ || elastic_->over())) return;
    more_may_start_ = false;
    tell(MessageKind::no_more);
  }

  void give_up(int rank, int error) {
    if (ending_) return;
    report_on_job("{}", start_failure_text(rank, job_.program.front(), name_of_host(rank), error));
    status_ = start_failure_status(error);
    ending_ = true;
    kill_all();
  }

  void tell(MessageKind kind, int number = 0) { agent_.obey({kind, -1, number, 0, ""}); }
  void signal_all(int number) { tell(MessageKind::signal, number); }

  // --- what the agents say ---

  void hear(const Message& event) {
    switch (event.kind) {
      case MessageKind::ready:
        return ready(host_in(event));
      case MessageKind::lost:
        return lost(host_in(event), event);
      case MessageKind::started: {
        Rank& rank = rank_in(event);
        rank.pid = event.value;
        rank.runs = true;
        if (elastic_) elastic_->started(event.number);
        return;
      }
      case MessageKind::not_started:
        rank_in(event);
        return give_up(event.number, event.value);
      case MessageKind::ended:
        return ended(rank_in(event), event.number, event.value);
      case MessageKind::output:
        host_in(event);
        if (event.number != 1 && event.number != 2) refuse();
        return streams_.print(event.host, event.number, event.text);
      case MessageKind::fed:
        return streams_.fed(event.value);
      case MessageKind::said:
        rank_in(event);
        if (!elastic_) refuse();
        return elastic_->said(event.number, event.text);
      case MessageKind::note:
        return report_on_job("{}{}", several_ ? host_in(event).name + ": " : "", event.text);
      case MessageKind::gone:
        host_in(event).gone = true;
        return;
      default:
        refuse();
    }
  }

  [[noreturn]] static void refuse() {
    throw Error(ErrorCode::mismatch, "an agent says what makes no sense");
  }
  HostState& host_in(const Message& event) {
    if (event.host < 0 || static_cast<std::size_t>(event.host) >= hosts_.size()) refuse();
    return hosts_[static_cast<std::size_t>(event.host)];
  }
  Rank& rank_in(const Message& event) {
    if (event.number < 0 || event.number >= job_.size) refuse();
    return ranks_[static_cast<std::size_t>(event.number)];
  }
  const Rank& rank_at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  /// Where it matters.
  std::string name_of_host(int rank) const {
    return several_ ? hosts_[static_cast<std::size_t>(rank_at(rank).host)].name : "";
  }

  void ready(HostState& host) {
    if (!host.answered) ++answered_;
    host.answered = true;
  }

  void ended(Rank& rank, int number, int status) {
    rank.runs = false;
    rank.status = status;
    const bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (ending_) return;
    if (!failed) ++done_;
    if (elastic_) return ended_in_elastic_job(number, failed);
    if (!failed) return;
    if (options_.keep_going) {
      report_on_job("{}", failure_of(number));
      failed_.push_back({number, status});
      return;
    }
    // Of failures seen together, a death by a signal is more likely the cause.
    if (!first_) judge_at_ = Clock::now() + (several_ ? kTogether : 0ms);
    if (!first_ || (WIFSIGNALED(status) && WIFEXITED(rank_at(*first_).status))) first_ = number;
  }

  void ended_in_elastic_job(int rank, bool failed) {
    const ElasticRun::Then then = elastic_->ended(rank, failed);
    if (!failed) return;
    if (!then.starts.empty()) return report_on_job("{}; starting it again", failure_of(rank));
    if (then.too_few) {
      report_on_job("{}, and is not started again, {}; {}", failure_of(rank), elastic_->why_not(),
                    too_few());
      return end_with(exit_status(rank_at(rank).status));
    }
    report_on_job("{}; the others go on without it, {}", failure_of(rank), elastic_->why_not());
    failed_.push_back({rank, rank_at(rank).status});
  }
  void end_the_rest() {
    conclude();
    report_on_job("{} came after the others had done the work; ending the job",
                  wire::list_ranks(living()));
    end_with(status_);
    terminate_at_ = Clock::now();
  }
  std::string too_few() const {
    return fmt::format("fewer than {} ranks are left (--elastic){}", options_.elastic.least,
                       any_runs() ? "; ending them" : "");
  }

  void lost(HostState& host, const Message& event) {
    if (host.gone) return;
    host.gone = true;
    const bool news = !ending_ && !event.text.empty();
    const std::string others =
        event.number > 0 ? fmt::format(" (so are the {} hosts behind it)", event.number) : "";
    if (!started_) {
      if (news) report_on_job("host {}: {}{}", host.name, event.text, others);
      ++troubles_;
      return ready(host);
    }
    std::vector<int> lost_ranks;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].host != event.host || !ranks_[rank].runs) continue;
      lost_ranks.push_back(static_cast<int>(rank));
      ranks_[rank].runs = false;
      ranks_[rank].status = SIGKILL;  // as if it had been killed
    }
    if (ending_) return;
    if (elastic_) lost_ranks = elastic_->living_on(event.host);
    if (lost_ranks.empty() && !news) {
      if (elastic_) elastic_->lost(event.host);
      return;
    }
    const std::string what =
        fmt::format("host {} is lost{}: {}; with it {}", host.name, others,
                    news ? event.text : "as the host between is",
                    lost_ranks.empty() ? "no rank" : wire::list_ranks(lost_ranks));
    if (elastic_) return lost_in_elastic_job(event.host, what, lost_ranks);
    report_on_job("{}{}", what,
                  !options_.keep_going && any_runs() ? "; ending the other ranks" : "");
    if (options_.keep_going) {
      for (const int rank : lost_ranks) failed_.push_back({rank, SIGKILL});
    } else {
      end_with(kHostLost);
    }
  }

  void lost_in_elastic_job(int host, const std::string& what, const std::vector<int>& lost_ranks) {
    const ElasticRun::Then then = elastic_->lost(host);
    std::string next;
    for (const int rank : then.starts) {
      next += fmt::format("{}rank {} on {}", next.empty() ? "; starting instead " : ", ", rank,
                          name_of_host(rank));
    }
    const std::size_t fewer = lost_ranks.size() - then.starts.size();
    if (then.too_few) {
      report_on_job("{}{}; {}, {}", what, next, too_few(), elastic_->why_not());
      return end_with(kHostLost);
    }
    report_on_job("{}{}{}", what, next,
                  fewer == 0 ? ""
                             : fmt::format("; the job goes on with {} {} fewer, {}", fewer,
                                           fewer == 1 ? "rank" : "ranks", elastic_->why_not()));
    for (std::size_t i = 0; i < fewer; ++i) failed_.push_back({lost_ranks[i], SIGKILL});
  }

  // --- the loop ---

  bool over() const {
    if (abandoned_ || (ending_ && !started_)) return true;
    if (first_ && !ending_) return false;
    if (!std::ranges::all_of(hosts_, [](const HostState& host) { return host.gone; })) return false;
    return no_more_output_ || streams_.all_written();
  }

  bool any_runs() const {
    return std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.runs; });
  }

  std::vector<int> living() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < job_.size; ++rank) {
      if (elastic_ ? elastic_->lives(rank) : rank_at(rank).runs) ranks.push_back(rank);
    }
    return ranks;
  }

  bool may_read_input() const { return passes_input_ && ranks_.front().runs; }

  void wait_for_something() {
    auto wake = std::min({time_limit_, terminate_at_, kill_at_, agent_.next_wake()});
    if (elastic_) wake = std::min(wake, elastic_->next_wake());
    if (first_ && !ending_) wake = std::min(wake, judge_at_);
    polls_.clear();
    signals_.add_polls(polls_);
    agent_.add_polls(polls_);
    streams_.add_polls(polls_, may_read_input());
    ::poll(polls_.data(), polls_.size(), milliseconds_until(wake));
  }

  void handle_signals() {
    if (signals_.stop_wanted()) {  // the ranks stop, then this process
      signal_all(SIGTSTP);
      agent_.serve();
      signals_.stop();
    }
    while (const auto number = signals_.next()) {
      if (*number == SIGCHLD) continue;
      if (!JobSignals::ends(*number)) {
        signal_all(*number);
      } else if (ended_by_user_) {
        abandoned_ = no_more_output_ && several_;  // by the third
        if (!killed_) kill_at_ = Clock::now();
        no_more_output_ = true;
      } else {
        ended_by_user_ = true;
        if (!ending_) status_ = 128 + *number;
        ending_ = true;
        signal_all(*number);
        terminate_at_ = Clock::time_point::max();
        kill_at_ = std::min(kill_at_, Clock::now() + kAfterSignal);
      }
    }
  }

  std::string failure_of(int rank) const {
    return failure_text(rank, rank_at(rank).pid, name_of_host(rank), rank_at(rank).status);
  }

  /// Rank `rank` failed: the job ends with its status.
  void begin_to_end(int rank) {
    report_on_job("{}{}", failure_of(rank), any_runs() ? "; ending the other ranks" : "");
    end_with(exit_status(rank_at(rank).status));
  }

  void end_with(int status) {
    status_ = status;
    ending_ = true;
    terminate_at_ = Clock::now() + kForOwnReports;
    kill_at_ = terminate_at_ + kForCleanUp;
  }

  /// With --keep-going or --elastic all ranks have ended by themselves, some of them perhaps too
  /// early. A rank that was killed could not help it, and the others may have gone on without it. A
  /// rank that exits says itself whether its work is done.
  void conclude() {
    if (failed_.empty()) return;
    const auto exited = std::ranges::find_if(
        failed_, [](const Failed& failed) { return WIFEXITED(failed.status); });
    if (exited != failed_.end()) {
      status_ = exit_status(exited->status);
    } else if (done_ == 0) {
      status_ = exit_status(failed_.front().status);
    }
    std::vector<int> ranks;
    for (const Failed& failed : failed_) ranks.push_back(failed.rank);
    std::ranges::sort(ranks);
    report_on_job("{} of {} ranks ended with status 0; {} did not", done_, done_ + ranks.size(),
                  wire::list_ranks(ranks));
  }

  void keep_time() {
    const auto now = Clock::now();
    if (now >= time_limit_) {
      time_limit_ = Clock::time_point::max();
      if (!ending_) time_is_over(now);
    }
    if (now >= terminate_at_) {
      terminate_at_ = Clock::time_point::max();
      signal_all(SIGTERM);
      signal_all(SIGCONT);  // a stopped process would not notice
    }
    if (now >= kill_at_) {
      if (killed_) leave_silent_hosts();
      kill_all();
    }
  }

  void kill_all() {
    killed_ = true;
    kill_at_ = Clock::now() + kAfterKill;
    signal_all(SIGKILL);
  }

  /// Hosts that are stopped or cut off, or whose ranks take long to die. Their agents end the ranks
  /// when they no longer hear this process.
  void leave_silent_hosts() {
    // This host's processes are waited for.
    if (here_ && !hosts_[*here_].gone) return;
    for (HostState& host : hosts_) {
      if (host.gone) continue;
      host.gone = true;
      report_on_job(
          "{} has not said that its ranks have ended; its agent ends them as soon as it runs and "
          "no longer hears this host",
          host.name);
    }
  }

  void time_is_over(Clock::time_point now) {
    const double seconds = std::chrono::duration<double>(options_.timeout).count();
    const std::vector<int> running = living();
    if (started_ && running.empty()) {
      no_more_output_ = true;  // only the reader of our output is late
      return;
    }
    if (started_) {
      report_on_job("{} still ran after {} s (--timeout); ending the job",
                    wire::list_ranks(running), seconds);
    } else {
      const auto silent = std::ranges::find(hosts_, false, &HostState::answered);
      report_on_job("{} not ready after {} s (--timeout); ending the job",
                    silent == hosts_.end() ? "the hosts were" : "host " + silent->name + " was",
                    seconds);
    }
    status_ = kJobTimedOut;
    ending_ = true;
    terminate_at_ = now;
    kill_at_ = now + kForCleanUp;
  }

  const JobOptions& options_;
  JobDescription job_;
  JobSignals signals_;
  std::vector<HostState> hosts_;  // by number
  std::vector<Rank> ranks_;
  JobStreams streams_;
  std::vector<pollfd> polls_;
  bool several_ = false;       // hosts, or another one than this
  bool passes_input_ = false;  // rank 0 does not inherit it

  std::size_t answered_ = 0, troubles_ = 0;  // hosts, before the start
  bool started_ = false;
  int status_ = 0;
  std::optional<int> first_;    // rank that failed, not judged yet
  std::vector<Failed> failed_;  // with keep_going or elastic_: not replaced, as they failed
  std::size_t done_ = 0;        // ranks that have ended with status 0
  bool more_may_start_ = true;  // processes of an elastic job
  bool ending_ = false;         // status_ is final
  bool ended_by_user_ = false;  // by a signal; another one kills
  bool no_more_output_ = false, abandoned_ = false;
  bool killed_ = false;              // SIGKILL is on its way to all ranks
  std::optional<std::size_t> here_;  // this host's number, if it has ranks
  Clock::time_point judge_at_ = Clock::time_point::max();
  Clock::time_point time_limit_ = Clock::time_point::max();
  Clock::time_point terminate_at_ = Clock::time_point::max();
  Clock::time_point kill_at_ = Clock::time_point::max();
  std::optional<ElasticRun> elastic_;
  Agent agent_;  // last: it speaks as long as it lives
};

}  // namespace

int run_job(const JobOptions& options) {
  // Descriptors 0 to 2 must not become those of pipes.
  for (int fd = 0; fd < 3; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) != fd) {
      throw_system_error("opening /dev/null");
    }
  }
  return LaunchedJob(options).run();
}

}  // namespace tutti
