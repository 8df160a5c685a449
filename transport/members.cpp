#include "transport/members.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti {

Members::Members(std::shared_ptr<HostPeers> host_peers, Ranks ranks)
    : host_peers_(std::move(host_peers)), ranks_(std::move(ranks)) {
  for (const int m : ranks_.members) who_.push_back(host_peers_->peer(m));
  for (int r = 0; r < size(); ++r) {
    if (same_host(r)) here_.push_back(r);
    one_process_ = one_process_ && same_process(r);
    // Also where hosts, or processes, are told apart by hand.
    const bool neighbour = r != rank() && alone_in_process_ && pid(r) == host_peers_->own_pid() &&
                           who(r).host_name == who(rank()).host_name;
    if (neighbour) alone_in_process_ = false;
  }
  host_peers_->hold(ranks_.members);
}

Members::~Members() {
  if (!is_inherited()) host_peers_->let_go(ranks_.members);
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

std::shared_ptr<SharedMemory> Members::receive(int rank, std::uint64_t key, std::size_t bytes,
                                               Deadline deadline) const try {
  return host_peers_->receive(member(rank), key, bytes, deadline);
} catch (const Error& e) {
  throw_with_rank(e);
}

FileDescriptor Members::receive(int rank, std::uint64_t key, Deadline deadline) const try {
  return host_peers_->receive(member(rank), key, deadline);
} catch (const Error& e) {
  throw_with_rank(e);
}

void Members::throw_with_rank(const Error& error) const {
  throw_with_ranks(error, rank(), rank_of(error.rank()));
}

std::string Members::process_text(int rank) const {
  const HostPeer& its = who(rank);
  return fmt::format("{}pid {}{}",
                     its.job_rank < 0 || its.job_rank == rank
                         ? ""
                         : fmt::format("rank {} of the job, ", its.job_rank),
                     its.pid, same_host(rank) ? "" : " on " + its.host_name);
}

std::string Members::member_text(int member) const {
  const int rank = rank_of(member);
  return rank >= 0 ? fmt::format("rank {}", rank) : fmt::format("rank {} of the job", member);
}

}  // namespace tutti
