// The card that a rank hands in where ranks meet: what the others have to know of it. And what the
// cards of all ranks say together, which all read alike.
#pragma once

#include <cstdint>
#include <span>

#include "bootstrap/rendezvous.h"
#include "collectives/model/gpu_places.h"
#include "collectives/model/machine.h"
#include "comm/communicator.h"
#include "comm/geometry.h"
#include "core/host.h"
#include "topology/graph.h"
#include "transport/host/host_peers.h"
#include "transport/network/network.h"

namespace tutti {

/// The key of a rank's network. The other ranks of a meeting are to know it; a reader of what they
/// hand round is not.
struct HiddenKey {
  protocol::Bytes32 salt{};
  protocol::Bytes32 bytes{};
};

/// Plain bytes.
struct SessionCard {
  static constexpr std::uint32_t kVersion = 15;

  std::uint32_t version = kVersion;
  std::uint16_t windows = 1;
  std::uint8_t round_once = 0;
  std::uint8_t invariant = 0;
  std::uint64_t slots = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t tile_bytes = 0;
  HostPeerAddress host_peers;
  NetworkAddress network;
  HiddenKey network_key;
  Machine machine;
  CoreSet cores;             // that this rank may run on
  std::int32_t domain = -1;  // domain_of() these
  GpuPlace gpu;
};
static_assert(sizeof(SessionCard) <= kMaxCardBytes);

/// Of this rank. `network`: null where there can be no ranks on other hosts. `secret`: of the place
/// where the ranks meet.
SessionCard card_of(const Geometry& g, HostPeers& host_peers, const Network* network,
                    const protocol::Bytes32& secret, const Options& options);
/// The key of the network of the rank with this card.
protocol::Bytes32 network_key_in(const SessionCard& card, const protocol::Bytes32& secret);

/// Throws Error(mismatch), on all ranks alike, unless all ask for it or none does.
void agree_on_invariance(std::span<const SessionCard> cards);
/// Throws Error(invalid_usage), on all ranks alike, where two of one host are of different users,
/// who share no memory.
void agree_on_users(std::span<const SessionCard> cards);
/// The protection of data to other hosts that rank 0 asks for. Throws Error(mismatch) where a rank
/// asks for more: it would believe that it has that.
Protection agreed_protection(std::span<const SessionCard> cards);
/// What the cards say of the communicator to be; `rank` is this one's. Throws Error(mismatch) where
/// rank 0's make no sense.
Geometry geometry_of(std::span<const SessionCard> cards, int rank);

/// Where the rank's GPU is in this host's graph; -1: it has none, or the graph does not.
int node_of(const topology::Graph& graph, int gpu);

}  // namespace tutti
