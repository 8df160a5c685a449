// See launcher.h.
#include "tools/run/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/rendezvous_protocol.h"
#include "bootstrap/rendezvous_server.h"
#include "bootstrap/unique_id.h"
#include "core/error.h"
#include "tools/run/agent.h"
#include "tools/run/job_end.h"
#include "tools/run/job_hosts.h"
#include "tools/run/job_ranks.h"
#include "tools/run/job_report.h"
#include "tools/run/job_signals.h"
#include "tools/run/job_streams.h"
#include "tools/run/rank_input.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kTogether = 200ms;  // failures on several hosts that may have one cause

class LaunchedJob {
 public:
  explicit LaunchedJob(const JobOptions& options)
      : options_(options),
        job_(options.job),
        ranks_(job_.hosts),
        streams_(job_.hosts.size()),
        end_([this](int number) { signal_all(number); }),
        agent_(signals_.mask_before(), [this](Message&& event) { hear(event); }) {
    job_.size = ranks_.size();
    if (job_.elastic) {
      elastic_.emplace(options_.elastic, ranks_.hosts_by_rank(),
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
      if (elastic_ && elastic_->is_done_without_the_rest() && !end_.has_begun()) end_the_rest();
      if (first_ && !end_.has_begun() && Clock::now() >= judge_at_) begin_to_end(*first_);
      keep_time();
      streams_.serve(agent_, may_read_input());
    }
    if ((options_.keep_going || elastic_) && !end_.has_begun()) end_.conclude();
    return end_.status() == 0 && streams_.has_lost_output() ? kOutputLost : end_.status();
  }

 private:
  using Rank = JobRanks::Rank;
  using Host = JobRanks::Host;

  // --- start ---

  void open() {
    if (options_.timeout > 0ns) time_limit_ = deadline_after(options_.timeout);
    const auto here = std::ranges::find_if(
        job_.hosts, [](const HostShare& host) { return is_this_host(host.name); });
    const bool has_here = here != job_.hosts.end();
    if (has_here) here_ = static_cast<std::size_t>(here->number);
    several_ = job_.hosts.size() > 1 || !has_here;
    const std::string& first = job_.hosts.front().name;
    const bool passes_output = several_ || job_.tag;
    const bool rank_0_is_here = has_here && here->first_rank == 0;
    passes_input_ = !rank_0_is_here || InputReader::is_terminal();
    job_.id = to_string(
        serve_rendezvous(Rounds::many, several_ ? meeting_place_for(job_.hosts) : MeetingPlace()));
    store_address_ = rank_0_is_here
                         ? host_text(protocol::decode(unique_id_from_string(job_.id)).address)
                         : first.substr(first.find('@') + 1);
    if (has_here) std::rotate(job_.hosts.begin(), here, here + 1);
    agent_.open(job_, has_here, {passes_input_, passes_output});
  }

  /// No rank starts before all hosts have answered, and none if one of them is in trouble.
  void start_if_ready() {
    if (started_ || end_.has_begun() || !ranks_.all_hosts_answered()) return;
    started_ = !in_trouble_;
    if (!started_) return end_.begin_without_ranks(kHostLost);
    agent_.obey({MessageKind::start, -1, store_port_, 0, store_address_});
    if (elastic_) elastic_->start();
  }

  /// Hosts without a rank stay in an elastic job until then.
  void say_no_more_if_done() {
    if (!elastic_ || !started_ || !more_may_start_) return;
    if (!end_.has_begun() && !elastic_->over()) return;
    more_may_start_ = false;
    tell(MessageKind::no_more);
  }

  void give_up(int rank, int error) {
    if (end_.has_begun()) return;
    report_on_job("{}", start_failure_text(rank, job_.program.front(), name_of_host(rank), error));
    end_.begin_with_kill(start_failure_status(error));
  }

  void tell(MessageKind kind, int number = 0) { agent_.obey({kind, -1, number, 0, ""}); }
  void signal_all(int number) { tell(MessageKind::signal, number); }

  // --- what the agents say ---

  void hear(const Message& event) {
    switch (event.kind) {
      case MessageKind::ready:
        ranks_.host_in(event).answered = true;
        if (event.value > 0 && event.value <= UINT16_MAX) store_port_ = event.value;
        return;
      case MessageKind::lost:
        return lost(ranks_.host_in(event), event);
      case MessageKind::started: {
        Rank& rank = ranks_.rank_in(event);
        rank.pid = event.value;
        rank.runs = true;
        if (elastic_) elastic_->started(event.number);
        return;
      }
      case MessageKind::not_started:
        ranks_.rank_in(event);
        return give_up(event.number, event.value);
      case MessageKind::ended:
        return ended(ranks_.rank_in(event), event.number, event.value);
      case MessageKind::output:
        ranks_.host_in(event);
        if (event.number != 1 && event.number != 2) JobRanks::refuse();
        return streams_.print(event.host, event.number, event.text);
      case MessageKind::fed:
        return streams_.fed(event.value);
      case MessageKind::said:
        ranks_.rank_in(event);
        if (!elastic_) JobRanks::refuse();
        return elastic_->said(event.number, event.text);
      case MessageKind::note:
        return report_on_job("{}{}", several_ ? ranks_.host_in(event).name + ": " : "", event.text);
      case MessageKind::gone:
        ranks_.host_in(event).gone = true;
        return;
      default:
        JobRanks::refuse();
    }
  }

  /// Where it matters.
  std::string name_of_host(int rank) const { return several_ ? ranks_.host_of(rank).name : ""; }

  void ended(Rank& rank, int number, int status) {
    rank.runs = false;
    rank.status = status;
    const bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (end_.has_begun()) return;
    if (!failed) end_.succeeded();
    if (elastic_) return ended_in_elastic_job(number, failed);
    if (!failed) return;
    if (options_.keep_going) {
      report_on_job("{}", failure_of(number));
      end_.failed(number, status);
      return;
    }
    // Of failures seen together, a death by a signal is more likely the cause.
    if (!first_) judge_at_ = Clock::now() + (several_ ? kTogether : 0ms);
    if (!first_ || (WIFSIGNALED(status) && WIFEXITED(ranks_.at(*first_).status))) first_ = number;
  }

  void ended_in_elastic_job(int rank, bool failed) {
    const ElasticRun::Then then = elastic_->ended(rank, failed);
    if (!failed) return;
    if (!then.starts.empty()) return report_on_job("{}; starting it again", failure_of(rank));
    if (then.too_few) {
      report_on_job("{}, and is not started again, {}; {}", failure_of(rank), elastic_->why_not(),
                    too_few());
      return end_.begin_after_reports(exit_status(ranks_.at(rank).status));
    }
    report_on_job("{}; the others go on without it, {}", failure_of(rank), elastic_->why_not());
    end_.failed(rank, ranks_.at(rank).status);
  }
  void end_the_rest() {
    end_.conclude();
    report_on_job("{} came after the others had done the work; ending the job",
                  protocol::list_ranks(living()));
    end_.begin_without_reports(end_.status());
  }
  std::string too_few() const {
    return fmt::format("fewer than {} ranks are left (--elastic){}", options_.elastic.least,
                       ranks_.any_runs() ? "; ending them" : "");
  }

  void lost(Host& host, const Message& event) {
    if (host.gone) return;
    host.gone = true;
    const bool news = !end_.has_begun() && !event.text.empty();
    const std::string others =
        event.number > 0 ? fmt::format(" (so are the {} hosts behind it)", event.number) : "";
    if (!started_) {
      if (news) report_on_job("host {}: {}{}", host.name, event.text, others);
      in_trouble_ = true;
      host.answered = true;
      return;
    }
    std::vector<int> lost_ranks = ranks_.lose_ranks_of(event.host);
    if (end_.has_begun()) return;
    if (elastic_) lost_ranks = elastic_->living_on(event.host);
    if (lost_ranks.empty() && !news) {
      if (elastic_) elastic_->lost(event.host);
      return;
    }
    const std::string what =
        fmt::format("host {} is lost{}: {}; with it {}", host.name, others,
                    news ? event.text : "as the host between is",
                    lost_ranks.empty() ? "no rank" : protocol::list_ranks(lost_ranks));
    if (elastic_) return lost_in_elastic_job(event.host, what, lost_ranks);
    report_on_job("{}{}", what,
                  !options_.keep_going && ranks_.any_runs() ? "; ending the other ranks" : "");
    if (options_.keep_going) {
      for (const int rank : lost_ranks) end_.failed(rank, SIGKILL);
    } else {
      end_.begin_after_reports(kHostLost);
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
      return end_.begin_after_reports(kHostLost);
    }
    report_on_job("{}{}{}", what, next,
                  fewer == 0 ? ""
                             : fmt::format("; the job goes on with {} {} fewer, {}", fewer,
                                           fewer == 1 ? "rank" : "ranks", elastic_->why_not()));
    for (std::size_t i = 0; i < fewer; ++i) end_.failed(lost_ranks[i], SIGKILL);
  }

  // --- the loop ---

  bool over() const {
    if (end_.is_abandoned() || (end_.has_begun() && !started_)) return true;
    if (first_ && !end_.has_begun()) return false;
    return ranks_.all_hosts_gone() && (end_.wants_no_more_output() || streams_.all_written());
  }

  std::vector<int> living() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < job_.size; ++rank) {
      if (elastic_ ? elastic_->lives(rank) : ranks_.at(rank).runs) ranks.push_back(rank);
    }
    return ranks;
  }

  bool may_read_input() const { return passes_input_ && ranks_.at(0).runs; }

  void wait_for_something() {
    auto wake = std::min({time_limit_, end_.next_wake(), agent_.next_wake()});
    if (elastic_) wake = std::min(wake, elastic_->next_wake());
    if (first_ && !end_.has_begun()) wake = std::min(wake, judge_at_);
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
      } else {
        end_.ask_by_user(*number, several_);
      }
    }
  }

  std::string failure_of(int rank) const {
    return failure_text(rank, ranks_.at(rank).pid, name_of_host(rank), ranks_.at(rank).status);
  }

  /// Rank `rank` failed: the job ends with its status.
  void begin_to_end(int rank) {
    report_on_job("{}{}", failure_of(rank), ranks_.any_runs() ? "; ending the other ranks" : "");
    end_.begin_after_reports(exit_status(ranks_.at(rank).status));
  }

  void keep_time() {
    const auto now = Clock::now();
    if (now >= time_limit_) {
      time_limit_ = Clock::time_point::max();
      if (!end_.has_begun()) time_is_over(now);
    }
    if (end_.silent_hosts_may_be_left(now)) leave_silent_hosts();
    end_.keep_time(now);
  }

  /// Hosts that are stopped or cut off, or whose ranks take long to die. Their agents end the ranks
  /// when they no longer hear this process.
  void leave_silent_hosts() {
    // This host's processes are waited for.
    if (here_ && !ranks_.hosts()[*here_].gone) return;
    for (Host& host : ranks_.hosts()) {
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
      end_.want_no_more_output();  // only the reader of our output is late
      return;
    }
    if (started_) {
      report_on_job("{} still ran after {} s (--timeout); ending the job",
                    protocol::list_ranks(running), seconds);
    } else {
      const auto silent = std::ranges::find(ranks_.hosts(), false, &Host::answered);
      report_on_job(
          "{} not ready after {} s (--timeout); ending the job",
          silent == ranks_.hosts().end() ? "the hosts were" : "host " + silent->name + " was",
          seconds);
    }
    end_.begin_on_time_out(kJobTimedOut, now);
  }

  const JobOptions& options_;
  JobDescription job_;
  JobSignals signals_;
  JobRanks ranks_;
  JobStreams streams_;
  std::vector<pollfd> polls_;
  bool several_ = false;  // hosts, or another one than this
  int store_port_ = 0;    // of PyTorch's store, at rank 0's host; 0: none
  std::string store_address_;
  bool passes_input_ = false;        // rank 0 does not inherit it
  std::optional<std::size_t> here_;  // this host's number, if it has ranks

  bool in_trouble_ = false;  // a host, before the start
  bool started_ = false;
  bool more_may_start_ = true;  // processes of an elastic job
  std::optional<int> first_;    // rank that failed, not judged yet
  Clock::time_point judge_at_ = Clock::time_point::max();
  Clock::time_point time_limit_ = Clock::time_point::max();
  JobEnd end_;
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
