// Requests to dial (network.h): where a firewall, say, lets connections through from one host to
// another but not back, the rank that cannot dial asks the one that can. The request goes from rank
// to rank over connections that exist, and between ranks of a host, which always reach each other;
// nobody dials another host for its sake. Each rank passes a request on once.
#include <algorithm>
#include <cstring>

#include "transport/network/network.h"

namespace tutti {
namespace {

// Up one tree of hosts and down (host_tree.h), and a step inside the first and the last host.
constexpr std::uint32_t kMostHops = 6;
constexpr std::size_t kMostWays = 5;  // as many neighbours as a host has in that tree

}  // namespace

void Network::on_unanswered(int member) {
  DialRequest request{0, identity_, 0, kMostHops};
  {
    const std::lock_guard lock(mutex_);
    const auto peer = peers_.find(member);
    if (peer == peers_.end() || peer->second.here) return;
    request.dialler = peer->second.identity;
    request.number = ++requests_;
  }
  pass_on(request, own_);
}

void Network::take_request(int from, std::span<const std::byte> bytes) {
  DialRequest request;
  if (bytes.size() != sizeof request) return;
  std::memcpy(&request, bytes.data(), sizeof request);
  if (request.target == identity_) return;
  std::shared_ptr<RemoteRank> target;
  {
    const std::lock_guard lock(mutex_);
    const int its = number_of(request.target);
    if (its < 0) return;  // of another communicator, perhaps
    if (request.dialler == identity_) target = find_or_make(its);
  }
  if (request.dialler != identity_) return pass_on(request, from);
  if (target != nullptr) target->connect();
}

void Network::pass_on(DialRequest request, int from) {
  if (request.hops == 0) return;
  std::vector<std::shared_ptr<RemoteRank>> ranks;
  {
    const std::lock_guard lock(mutex_);
    if (leaving_) return;
    std::uint32_t& last = requests_passed_[{request.dialler, request.target}];
    if (request.number <= last) return;
    last = request.number;
    for (const int way : ways_to(request.dialler, from)) ranks.push_back(find_or_make(way));
  }
  request.hops = std::min(request.hops, kMostHops) - 1;
  for (const auto& r : ranks) {
    if (r != nullptr) r->tell(0, kDialNote, protocol::bytes_of(request));
  }
}

/// With mutex_ held.
std::vector<int> Network::ways_to(std::uint64_t identity, int from) {
  const int member = number_of(identity);
  if (member < 0) return {};
  if (peers_.at(member).here) return {member};
  std::vector<int> up, here;
  for (const auto& [r, remote] : ranks_) {
    if (r == from || !remote->is_up()) continue;
    if (r == member) return {member};
    if (!peers_.at(r).here) up.push_back(r);
  }
  for (const auto& [r, peer] : peers_) {
    if (peer.here && peer.address.get() && r != own_) here.push_back(r);
  }
  std::vector<int> ways;
  // A rank of this host may have a way that this one lacks. A rank that another one asks does not
  // ask the ranks of its own host.
  if (from == own_ && !here.empty()) ways.push_back(here[next_way_ % here.size()]);
  for (std::size_t i = 0; i < std::min(up.size(), kMostWays); ++i) {
    ways.push_back(up[(next_way_ + i) % up.size()]);
  }
  ++next_way_;
  return ways;
}

}  // namespace tutti
