// An agent: the ranks of one host, and the agents of further hosts that it has started. Commands
// for all ranks go through it to both, and what they have to tell comes back through it. The
// launcher has one in its own process; on another host, `tutti run-agent` is one (remote_agent.h).
#pragma once

#include <poll.h>
#include <signal.h>

#include <chrono>
#include <list>
#include <optional>
#include <vector>

#include "tools/run/agent_link.h"
#include "tools/run/agent_messages.h"
#include "tools/run/host_ranks.h"
#include "tools/spawn.h"

namespace tutti {

class Agent {
 public:
  /// Forks: make it while this process has one thread. `ranks_mask`: the signal mask of ranks.
  Agent(const sigset_t& ranks_mask, HearMessage hear);
  ~Agent();
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;

  /// Prepares for a job: starts further agents. `here`: whether the first host is this one.
  void open(const JobDescription& job, bool here, PassedOn passed_on);
  void obey(const Message& command);
  /// Children of this process have ended.
  void reap();

  void add_polls(std::vector<pollfd>& polls) const;
  std::chrono::steady_clock::time_point next_wake() const;
  void serve();
  /// All hosts are gone or lost.
  bool over() const;
  /// Ends all that is left, and waits a moment for the commands that run the other agents.
  void close();

 private:
  const sigset_t ranks_mask_;
  const HearMessage hear_;
  JobDescription job_;
  const bool had_children_;  // that are none of the job's: it was made by exec()
  Keeper keeper_;
  std::optional<HostRanks> ranks_;
  std::list<AgentLink> links_;
};

}  // namespace tutti
