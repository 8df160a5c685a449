// What the launcher knows of a job's hosts and ranks: the last that agents have said of them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "tools/run/agent_messages.h"

namespace tutti {

class JobRanks {
 public:
  struct Rank {
    int host = 0;
    pid_t pid = -1;
    bool runs = false;
    int status = 0;  // as waitpid() has it
  };
  struct Host {
    std::string name;
    bool answered = false, gone = false;
  };

  /// `hosts` are in the order of their numbers.
  explicit JobRanks(const std::vector<HostShare>& hosts);

  int size() const { return static_cast<int>(ranks_.size()); }
  const Rank& at(int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }
  const Host& host_of(int rank) const { return hosts_[static_cast<std::size_t>(at(rank).host)]; }
  std::vector<Host>& hosts() { return hosts_; }
  const std::vector<Host>& hosts() const { return hosts_; }
  /// Where each rank is.
  std::vector<int> hosts_by_rank() const;

  /// The host and the rank that an agent speaks of. They throw Error(mismatch) for one that is not
  /// there.
  Host& host_in(const Message& event);
  Rank& rank_in(const Message& event);
  /// An agent has said what makes no sense: throws Error(mismatch).
  [[noreturn]] static void refuse();

  bool any_runs() const;
  bool all_hosts_answered() const;
  bool all_hosts_gone() const;
  /// The ranks that ran on a lost host. They count as killed from now on.
  std::vector<int> lose_ranks_of(int host);

 private:
  std::vector<Host> hosts_;  // by number
  std::vector<Rank> ranks_;
};

}  // namespace tutti
