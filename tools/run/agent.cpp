// See agent.h.
#include "tools/run/agent.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr auto kForCommands = 1s;  // to end by themselves, once the agents have

bool has_children() {
  siginfo_t any{};
  return ::waitid(P_ALL, 0, &any, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

}  // namespace

Agent::Agent(const sigset_t& ranks_mask, HearMessage hear)
    : ranks_mask_(ranks_mask), hear_(std::move(hear)), had_children_(has_children()) {
  // Processes that lose their parent become ours: they are reaped, and seen to end.
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
}

Agent::~Agent() { close(); }

void Agent::open(const JobDescription& job, bool here, PassedOn passed_on) {
  job_ = job;
  std::vector<HostShare> below = job.hosts;
  if (here) {
    below.erase(below.begin());
    ranks_.emplace(job_, passed_on, ranks_mask_, keeper_, below.empty() && !had_children_, hear_);
    hear_({MessageKind::ready, job_.hosts.front().number, 0, ranks_->reserve_port(), ""});
  }
  // As many groups as may be started from here, one longer than another by one at most.
  const std::size_t groups = std::min(below.size(), static_cast<std::size_t>(job.fan_out));
  for (std::size_t g = 0; g < groups; ++g) {
    JobDescription part = job;
    const auto at = [&](std::size_t group) {
      return below.begin() + static_cast<std::ptrdiff_t>(below.size() * group / groups);
    };
    part.hosts.assign(at(g), at(g + 1));
    links_.emplace_back(std::move(part), ranks_mask_);
  }
}

void Agent::obey(const Message& command) {
  switch (command.kind) {
    case MessageKind::start:
      for (AgentLink& link : links_) link.send(command);
      if (ranks_) ranks_->start(command.number, command.text);
      break;
    case MessageKind::input:  // rank 0's host is the first of all
      if (ranks_ && job_.hosts.front().first_rank == 0) {
        ranks_->obey(command);
      } else if (!links_.empty()) {
        links_.front().send(command);
      }
      break;
    case MessageKind::taken:
    case MessageKind::start_rank:
    case MessageKind::word:  // each is for one host
      if (ranks_ && job_.hosts.front().number == command.host) ranks_->obey(command);
      for (AgentLink& link : links_) {
        const bool on_the_way = std::ranges::any_of(
            link.hosts(), [&](const HostShare& host) { return host.number == command.host; });
        if (on_the_way) link.send(command);
      }
      break;
    default:
      for (AgentLink& link : links_) link.send(command);
      if (ranks_) ranks_->obey(command);
      break;
  }
}

void Agent::reap() {
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG)) > 0;) {
    if (ranks_ && ranks_->note_end(pid, status)) continue;
    for (AgentLink& link : links_) link.note_end(pid, status);  // or the keeper, or an orphan
  }
}

void Agent::add_polls(std::vector<pollfd>& polls) const {
  if (ranks_) ranks_->add_polls(polls);
  for (const AgentLink& link : links_) link.add_polls(polls);
}

std::chrono::steady_clock::time_point Agent::next_wake() const {
  auto wake = std::chrono::steady_clock::time_point::max();
  if (ranks_) wake = ranks_->next_wake();
  for (const AgentLink& link : links_) wake = std::min(wake, link.next_wake());
  return wake;
}

void Agent::serve() {
  if (ranks_) ranks_->serve();
  for (AgentLink& link : links_) link.serve(hear_);
}

bool Agent::over() const {
  return (!ranks_ || ranks_->gone()) &&
         std::ranges::all_of(links_, [](const AgentLink& link) { return link.ended(); });
}

void Agent::close() {
  if (ranks_) ranks_->obey({.kind = MessageKind::signal, .number = SIGKILL, .text = ""});
  for (AgentLink& link : links_) link.close();
  const auto end = std::chrono::steady_clock::now() + kForCommands;
  while (std::ranges::any_of(links_, [](const AgentLink& link) { return !link.exited(); })) {
    reap();
    if (std::chrono::steady_clock::now() > end) return;
    ::usleep(2000);
  }
}

}  // namespace tutti
