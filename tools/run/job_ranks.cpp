// See job_ranks.h.
#include "tools/run/job_ranks.h"

#include <signal.h>

#include <algorithm>

#include "core/error.h"

namespace tutti {

JobRanks::JobRanks(const std::vector<HostShare>& hosts) {
  for (const HostShare& host : hosts) {
    hosts_.push_back({host.name, false, false});
    ranks_.insert(ranks_.end(), static_cast<std::size_t>(host.ranks), Rank{host.number});
  }
}

std::vector<int> JobRanks::hosts_by_rank() const {
  std::vector<int> hosts;
  for (const Rank& rank : ranks_) hosts.push_back(rank.host);
  return hosts;
}

JobRanks::Host& JobRanks::host_in(const Message& event) {
  if (event.host < 0 || static_cast<std::size_t>(event.host) >= hosts_.size()) refuse();
  return hosts_[static_cast<std::size_t>(event.host)];
}

JobRanks::Rank& JobRanks::rank_in(const Message& event) {
  if (event.number < 0 || event.number >= size()) refuse();
  return ranks_[static_cast<std::size_t>(event.number)];
}

void JobRanks::refuse() { throw Error(ErrorCode::mismatch, "an agent says what makes no sense"); }

bool JobRanks::any_runs() const { return std::ranges::any_of(ranks_, &Rank::runs); }
bool JobRanks::all_hosts_answered() const { return std::ranges::all_of(hosts_, &Host::answered); }
bool JobRanks::all_hosts_gone() const { return std::ranges::all_of(hosts_, &Host::gone); }

std::vector<int> JobRanks::lose_ranks_of(int host) {
  std::vector<int> lost;
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (ranks_[rank].host != host || !ranks_[rank].runs) continue;
    lost.push_back(static_cast<int>(rank));
    ranks_[rank].runs = false;
    ranks_[rank].status = SIGKILL;  // as if it had been killed
  }
  return lost;
}

}  // namespace tutti
