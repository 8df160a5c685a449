#include "transport/members.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti {

Members::Members(std::shared_ptr<HostPeers> host_peers, Ranks ranks)
    : host_peers_(std::move(host_peers)), ranks_(std::move(ranks)) {
  const auto host_name = [this](int r) { return host_peers_->host_name(member(r)); };
  for (int r = 0; r < size(); ++r) {
    if (same_host(r)) here_.push_back(r);
    one_process_ = one_process_ && same_process(r);
    // Also where hosts, or processes, are told apart by hand.
    const bool neighbour = r != rank() && alone_in_process_ &&
                           pid(r) == host_peers_->address().pid &&
                           host_name(r) == host_name(rank());
    if (neighbour) alone_in_process_ = false;
  }
}

int Members::rank_of(int member) const {
  const auto found = std::ranges::find(ranks_.members, member);
  return found == ranks_.members.end() ? -1 : static_cast<int>(found - ranks_.members.begin());
}

std::vector<int> Members::ranks_among(std::span<const int> members) const {
  std::vector<int> ranks;
  for (const int member : members) {
    if (const int rank = rank_of(member); rank >= 0) ranks.push_back(rank);
  }
  return ranks;
}

std::string Members::process_text(int rank) const {
  const std::string host = same_host(rank) ? "" : " on " + host_peers_->host_name(member(rank));
  const std::string job =
      member(rank) == rank ? "" : fmt::format("rank {} of the job, ", member(rank));
  return fmt::format("{}pid {}{}", job, pid(rank), host);
}

}  // namespace tutti
