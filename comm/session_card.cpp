// See session_card.h.
#include "comm/session_card.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "bootstrap/rendezvous_protocol.h"
#include "core/error.h"
#include "core/settings.h"
#include "topology/place.h"
#include "transport/gpu/gpu_driver.h"

namespace tutti {
namespace {

/// Covers `key`, or uncovers a covered one.
protocol::Bytes32 covered(protocol::Bytes32 key, const protocol::Bytes32& salt,
                          const protocol::Bytes32& secret) {
  const protocol::Bytes32 cover = protocol::hash(secret, "network key", {salt});
  for (std::size_t i = 0; i < key.size(); ++i) key[i] ^= cover[i];
  return key;
}

HiddenKey hidden(const protocol::Bytes32& key, const protocol::Bytes32& secret) {
  HiddenKey h;
  protocol::fill_random(h.salt);
  h.bytes = covered(key, h.salt, secret);
  return h;
}

/// What a host's ranks share.
struct HostShare {
  CoreSet cores;
  std::uint64_t ranks = 0;
};

}  // namespace

int node_of(const topology::Graph& graph, int gpu) {
  return gpu < 0 ? -1 : topology::gpu_node(graph, gpu_address(gpu), gpu);
}

SessionCard card_of(const Geometry& g, HostPeers& host_peers, const Network* network,
                    const protocol::Bytes32& secret, const Options& options) {
  SessionCard card;
  card.windows = g.windows ? 1 : 0;
  card.round_once = g.round_once ? 1 : 0;
  card.invariant = options.invariant ? 1 : 0;
  card.slots = g.shape.slots;
  card.slot_bytes = g.shape.slot_bytes;
  card.tile_bytes = g.tile_bytes;
  card.host_peers = host_peers.listen();
  if (network != nullptr) {
    card.network = network->address();
    if (options.encrypt)
      card.network.protection = static_cast<std::uint32_t>(Protection::encryption);
    card.network_key = hidden(network->key(), secret);
  }
  card.machine = g.machine;
  card.cores = allowed_cores();
  card.domain = domain_of(card.cores);
  // A rank on cores needs no graph, which takes longer to look at than the rest of the start.
  if (options.gpu < 0) return card;
  if (const auto graph = topology::host_graph()) {
    card.gpu = gpu_place(*graph, node_of(*graph, options.gpu));
  }
  return card;
}

protocol::Bytes32 network_key_in(const SessionCard& card, const protocol::Bytes32& secret) {
  return covered(card.network_key.bytes, card.network_key.salt, secret);
}

void agree_on_invariance(std::span<const SessionCard> cards) {
  const bool first = cards.front().invariant != 0;
  for (std::size_t r = 1; r < cards.size(); ++r) {
    if ((cards[r].invariant != 0) == first) continue;
    throw Error(ErrorCode::mismatch,
                fmt::format("rank {} asks for invariant bits and rank {} does not: set "
                            "TUTTI_INVARIANT (Options::invariant) alike on all ranks",
                            first ? 0 : r, first ? r : 0),
                static_cast<int>(r));
  }
}

void agree_on_users(std::span<const SessionCard> cards) {
  std::map<std::array<std::uint64_t, 2>, std::size_t> first;  // the first rank of each host
  for (std::size_t r = 0; r < cards.size(); ++r) {
    const HostPeerAddress& its = cards[r].host_peers;
    const std::size_t f = first.try_emplace(its.host, r).first->second;
    const HostPeerAddress& other = cards[f].host_peers;
    if (its.users != other.users || its.user == other.user) continue;
    throw Error(ErrorCode::invalid_usage,
                fmt::format("rank {} runs as user {}, and rank {}, on the same host, as user {}: "
                            "ranks of a host share memory, so start them all as one user",
                            r, its.user, f, other.user),
                static_cast<int>(r));
  }
}

Protection agreed_protection(std::span<const SessionCard> cards) {
  const std::uint32_t agreed = cards.front().network.protection;
  for (std::size_t r = 0; r < cards.size(); ++r) {
    const std::uint32_t asked = cards[r].network.protection;
    if (asked <= agreed && agreed <= static_cast<std::uint32_t>(Protection::encryption)) continue;
    throw Error(ErrorCode::mismatch,
                fmt::format("rank {} has set {}, but rank 0 has set {}, and rank 0's counts: set "
                            "it on rank 0, or on all",
                            r, setting_of(static_cast<Protection>(asked)),
                            setting_of(static_cast<Protection>(agreed))),
                static_cast<int>(r));
  }
  return static_cast<Protection>(agreed);
}

Geometry geometry_of(std::span<const SessionCard> cards, int rank) {
  Geometry g;
  const SessionCard& first = cards.front();
  g.tile_bytes = static_cast<std::size_t>(first.tile_bytes);
  g.windows = first.windows != 0;
  g.round_once = first.round_once != 0;
  g.invariant = first.invariant != 0;
  g.machine = first.machine;
  if (!is_valid(g.machine) || !setting_allows("TUTTI_SLOTS", first.slots) ||
      !setting_allows("TUTTI_SLOT_BYTES", first.slot_bytes) ||
      !setting_allows("TUTTI_TILE_BYTES", g.tile_bytes)) {
    throw Error(ErrorCode::mismatch, "rank 0 sent sizes or constants that make no sense");
  }
  // Hosts count from 0, in the order of their first ranks, on all ranks alike.
  std::map<std::array<std::uint64_t, 2>, int> numbers;
  std::vector<HostShare> hosts;
  std::vector<int> host_of, domains;
  for (const SessionCard& card : cards) {
    const auto [host, is_new] =
        numbers.try_emplace(card.host_peers.host, static_cast<int>(hosts.size()));
    if (is_new) hosts.emplace_back();
    HostShare& share = hosts[static_cast<std::size_t>(host->second)];
    share.cores |= card.cores;
    ++share.ranks;
    host_of.push_back(host->second);
    domains.push_back(card.domain);
    g.gpus.push_back(card.gpu);
  }
  g.cores = 0;
  bool crowded = false;
  for (const HostShare& host : hosts) {
    const std::uint64_t cores = std::max<std::size_t>(host.cores.count(), 1);
    g.cores += cores;
    crowded = crowded || host.ranks > cores;
    const int own = host_of[static_cast<std::size_t>(rank)];
    if (&host == &hosts[static_cast<std::size_t>(own)]) g.cores_here = cores;
  }
  g.shape = links_for({first.slots, first.slot_bytes}, static_cast<int>(cards.size()), crowded,
                      hosts.size() == cards.size(), g.machine.l2_bytes);
  g.domains = Domains::on_hosts(host_of, domains);
  g.hosts = Domains(host_of);
  return g;
}

}  // namespace tutti
