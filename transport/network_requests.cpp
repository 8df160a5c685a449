// Requests to dial, of which network.h tells: where a firewall, say, lets connections through from
// one host to another but not back, the rank that cannot dial asks the one that can. The request
// goes from rank to rank over connections that exist, and between ranks of a host, which always
// reach each other; nobody dials another host for its sake. Each rank passes a request on once.
#include <algorithm>
#include <cstring>

#include "transport/network.h"

namespace tutti {
namespace {

// Up one tree of hosts and down (host_tree.h), and a step inside the first and the last host.
constexpr std::uint32_t kMostHops = 6;
constexpr std::size_t kMostWays = 5;  // as many neighbours as a host has in that tree

}  // namespace

void Network::on_unanswered(int member) {
  if (peers_[static_cast<std::size_t>(member)].here) return;
  DialRequest request{member, rank_, 0, kMostHops};
  {
    const std::lock_guard lock(mutex_);
    request.number = ++requests_;
  }
  pass_on(request, rank_);
}

void Network::take_request(int from, std::span<const std::byte> bytes) {
  DialRequest request;
  if (bytes.size() != sizeof request) return;
  std::memcpy(&request, bytes.data(), sizeof request);
  const auto is_rank = [&](int r) { return r >= 0 && static_cast<std::size_t>(r) < peers_.size(); };
  if (!is_rank(request.who) || !is_rank(request.whom) || request.whom == rank_) return;
  if (request.who != rank_) return pass_on(request, from);
  RemoteRank* whom = nullptr;
  {
    const std::lock_guard lock(mutex_);
    whom = find_or_make(request.whom);
  }
  if (whom != nullptr) whom->connect();
}

void Network::pass_on(DialRequest request, int from) {
  if (request.hops == 0) return;
  std::vector<RemoteRank*> ranks;
  {
    const std::lock_guard lock(mutex_);
    if (leaving_) return;
    std::uint32_t& last = requests_passed_[{request.who, request.whom}];
    if (request.number <= last) return;
    last = request.number;
    for (const int way : ways_to(request.who, from)) ranks.push_back(find_or_make(way));
  }
  request.hops = std::min(request.hops, kMostHops) - 1;
  for (RemoteRank* const r : ranks) {
    if (r != nullptr) r->tell(0, kDialNote, wire::bytes_of(request));
  }
}

/// With mutex_ held.
std::vector<int> Network::ways_to(int member, int from) {
  if (peers_[static_cast<std::size_t>(member)].here) return {member};
  std::vector<int> up, here;
  for (const auto& [r, remote] : ranks_) {
    if (r == from || !remote->is_up()) continue;
    if (r == member) return {member};
    if (!peers_[static_cast<std::size_t>(r)].here) up.push_back(r);
  }
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    const int rank = static_cast<int>(r);
    if (peers_[r].here && peers_[r].address.get() && rank != rank_) here.push_back(rank);
  }
  std::vector<int> ways;
  // A rank of this host may have what this one has not; who is asked by one does not ask others.
  if (from == rank_ && !here.empty()) ways.push_back(here[next_way_ % here.size()]);
  for (std::size_t i = 0; i < std::min(up.size(), kMostWays); ++i) {
    ways.push_back(up[(next_way_ + i) % up.size()]);
  }
  ++next_way_;
  return ways;
}

}  // namespace tutti
