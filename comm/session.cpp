#include "comm/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "bootstrap/rendezvous.h"
#include "bootstrap/rendezvous_protocol.h"
#include "core/background.h"
#include "core/host.h"
#include "core/log.h"
#include "core/settings.h"
#include "device/board.h"
#include "topology/place.h"
#include "transport/gpu_memory.h"
#include "transport/socket.h"
#include "transport/tcp_socket.h"

namespace tutti {
namespace {

constexpr std::uint32_t kVersion = 10;

struct SessionCard {
  std::uint32_t version = kVersion;
  std::uint16_t windows = 1;
  std::uint16_t round_once = 0;
  std::uint64_t slots = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t tile_bytes = 0;
  HostPeerAddress host_peers;
  NetworkAddress network;
  Machine machine;
  CoreSet cores;             // that this rank may run on
  std::int32_t domain = -1;  // domain_of() these
  GpuPlace gpu;
};
static_assert(sizeof(SessionCard) <= kMaxCardBytes);

RankCard what_is_said(const Options& options) {
  return {setting_boolean("TUTTI_CMA"),
          [gpu = options.gpu](ControlBlock& own) { device_card(own).ordinal = gpu; }};
}

/// Where the rank's GPU is in this host's graph; -1: it has none, or the graph does not.
int node_of(const topology::Graph& graph, int gpu) {
  return gpu < 0 ? -1 : topology::gpu_node(graph, gpu_address(gpu), gpu);
}

SessionCard card_of(const Geometry& g, const HostPeers& host_peers, const Network* network,
                    const Options& options) {
  SessionCard card;
  card.windows = g.windows ? 1 : 0;
  card.round_once = g.round_once ? 1 : 0;
  card.slots = g.shape.slots;
  card.slot_bytes = g.shape.slot_bytes;
  card.tile_bytes = g.tile_bytes;
  card.host_peers = host_peers.address();
  if (network != nullptr) card.network = network->address();
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

/// Of the ports of RDMA devices, those that the graph has nearest to the rank's GPU, or its cores.
std::uint32_t nearest_of(std::span<const std::string> ports, const Options& options) {
  const auto graph = topology::host_graph();
  if (!graph) return 0;
  int node = node_of(*graph, options.gpu);
  if (node < 0) node = topology::cores_node(*graph, allowed_cores());
  std::uint32_t nearest = 0;
  for (const int port : topology::near_ports(*graph, node)) {
    // The first port of a device has the device's name.
    const std::string& name = graph->node(port).name;
    const std::string whole = name.find(':') == name.npos ? name + ":1" : name;
    const auto at = std::ranges::find(ports, whole);
    if (at != ports.end()) nearest |= 1U << (at - ports.begin());
  }
  return nearest;
}

/// What leads to ranks on other hosts, which meet this one at `place`; null where there can be
/// none.
std::shared_ptr<Network> network_for(const SocketAddress& place, const Options& options) {
  const SocketAddress own = own_address(place, options.interfaces);
  // Whoever meets at a loopback address is on this host, unless hosts were told apart by hand.
  if (is_loopback(own) && options.host_id.empty()) return nullptr;
  return std::make_shared<Network>(
      own, [&](std::span<const std::string> ports) { return nearest_of(ports, options); });
}

/// What rank 0 asks for, for what goes to other hosts. Throws Error(mismatch) where a rank asks for
/// more: it would believe that it has it.
Protection agreed_protection(const std::vector<SessionCard>& cards) {
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

void begin(const std::shared_ptr<Network>& network, const HostPeers& host_peers, int rank,
           const std::vector<SessionCard>& cards, const wire::Bytes32& secret) {
  // Where one cannot do as it was told, all hear of it.
  if (network != nullptr) network->check();
  for (std::size_t r = 0; r < cards.size(); ++r) {
    if (static_cast<int>(r) != rank) check_offer(cards[r].network.wires, static_cast<int>(r));
  }
  std::vector<Network::Peer> peers(cards.size());
  for (std::size_t r = 0; r < cards.size(); ++r) {
    const int peer = static_cast<int>(r);
    peers[r] = {cards[r].network, host_peers.same_host(peer)};
    if (peers[r].here || (network != nullptr && peers[r].address.get())) continue;
    throw Error(ErrorCode::system,
                fmt::format("rank {} runs on another host ({}), or in another network namespace, "
                            "than rank {} ({}), but they meet at a loopback address: set "
                            "TUTTI_ADDRESS to an address of rank 0's host that the others reach",
                            r, host_peers.host_name(peer), rank, host_peers.host_name(rank)),
                peer);
  }
  network->begin(rank, std::move(peers), secret, agreed_protection(cards));
}

/// What a host's ranks share.
struct HostShare {
  CoreSet cores;
  std::uint64_t ranks = 0;
};

/// Connects `host_peers` to everybody and makes the segments. `cards` by rank.
Session connect(std::shared_ptr<HostPeers> host_peers, std::shared_ptr<Network> network, int rank,
                const std::vector<SessionCard>& cards, const wire::Bytes32& secret,
                const Options& options) {
  const auto deadline = deadline_after(options.rendezvous_timeout);
  std::vector<HostPeerAddress> addresses;
  std::vector<int> members;
  std::vector<std::uint64_t> keys;
  std::vector<int> domains;
  for (const SessionCard& card : cards) {
    if (card.version != kVersion) {
      throw Error(ErrorCode::mismatch, "rank " + std::to_string(addresses.size()) +
                                           " runs another, incompatible version of Tutti");
    }
    members.push_back(static_cast<int>(addresses.size()));
    addresses.push_back(card.host_peers);
    keys.push_back(card.host_peers.key);
    domains.push_back(card.domain);
  }
  host_peers->connect(rank, addresses, secret, deadline);
  std::vector<HostShare> hosts(static_cast<std::size_t>(host_peers->hosts()));
  std::vector<int> host_of;
  for (std::size_t r = 0; r < cards.size(); ++r) {
    host_of.push_back(host_peers->host(static_cast<int>(r)));
    HostShare& host = hosts[static_cast<std::size_t>(host_of.back())];
    host.cores |= cards[r].cores;
    ++host.ranks;
  }
  if (hosts.size() > 1) {
    begin(network, *host_peers, rank, cards, secret);
  } else {
    network.reset();
  }
  Session session;
  Geometry& g = session.geometry;
  const SessionCard& first = cards.front();
  g.tile_bytes = static_cast<std::size_t>(first.tile_bytes);
  g.windows = first.windows != 0;
  g.round_once = first.round_once != 0;
  g.machine = first.machine;
  if (!is_valid(g.machine) || !setting_allows("TUTTI_SLOTS", first.slots) ||
      !setting_allows("TUTTI_SLOT_BYTES", first.slot_bytes) ||
      !setting_allows("TUTTI_TILE_BYTES", g.tile_bytes)) {
    throw Error(ErrorCode::mismatch, "rank 0 sent sizes or constants that make no sense");
  }
  g.cores = 0;
  bool crowded = false;
  for (const HostShare& host : hosts) {
    const std::uint64_t cores = std::max<std::size_t>(host.cores.count(), 1);
    g.cores += cores;
    crowded = crowded || host.ranks > cores;
    if (&host == &hosts[static_cast<std::size_t>(host_peers->host(rank))]) g.cores_here = cores;
  }
  g.shape = links_for({first.slots, first.slot_bytes}, static_cast<int>(cards.size()), crowded,
                      hosts.size() == cards.size());
  g.domains = Domains::on_hosts(host_of, domains);
  g.hosts = Domains(host_of);
  for (const SessionCard& card : cards) g.gpus.push_back(card.gpu);
  if (rank == 0) {
    log().debug("{} ranks on {} hosts, {} cores with {} last-level caches", cards.size(),
                hosts.size(), g.cores, g.domains.count());
  }
  const std::uint64_t id = keys.front();
  session.group =
      std::make_unique<RankGroup>(std::move(host_peers), std::move(network),
                                  RankGroup::Ranks{rank, std::move(members), std::move(keys), id},
                                  g.shape, what_is_said(options), deadline);
  return session;
}

}  // namespace

Geometry geometry_of(const Options& options, int rank) {
  Geometry g;
  g.shape = {options.slots, (options.slot_bytes + kCacheLine - 1) / kCacheLine * kCacheLine};
  g.tile_bytes = setting_bytes("TUTTI_TILE_BYTES");
  g.windows = setting_boolean("TUTTI_WINDOWS");
  g.round_once = options.round_once;
  if (rank == 0) g.machine = used_machine().machine;
  return g;
}

ConnectionShape links_for(ConnectionShape wish, int ranks, bool crowded, bool apart) {
  constexpr std::size_t kLeast = 8;
  constexpr std::size_t kMost = 32;
  // That all of a rank's links are to have, about.
  constexpr std::size_t kLinksBytes = std::size_t{8} << 20;
  const auto links = static_cast<std::size_t>(std::max(ranks - 1, 1));
  if (wish.slot_bytes == 0) {
    constexpr std::size_t kNear = std::size_t{64} << 10, kFar = std::size_t{512} << 10;
    wish.slot_bytes =
        apart ? std::clamp(kLinksBytes / links / kLeast / kNear * kNear, kNear, kFar) : kNear;
  }
  if (wish.slots > 0) return wish;
  // Ranks that share a core share its caches: the less data goes round, the more stays there.
  if (crowded) return {kMost, wish.slot_bytes, kLeast};
  // Else a link should exceed a core's L2 cache (transport/connection.h).
  return {kMost, wish.slot_bytes, std::clamp(kLinksBytes / links / wish.slot_bytes, kLeast, kMost)};
}

Session open_session(const UniqueId& id, int rank, int size, const Options& options) {
  const SocketAddress place = wire::decode(id).address;
  std::shared_ptr<HostPeers> host_peers;
  std::shared_ptr<Network> network;
  SessionCard mine;
  try {
    host_peers = std::make_shared<HostPeers>(options.host_id);
    network = network_for(place, options);
    mine = card_of(geometry_of(options, rank), *host_peers, network.get(), options);
  } catch (const Error& error) {
    refuse_rendezvous(id, rank, size, error);
    throw;
  }
  const Roster roster =
      rendezvous(id, rank, size, wire::bytes_of(mine), options.rendezvous_timeout);
  std::vector<SessionCard> cards(static_cast<std::size_t>(size));
  for (int r = 0; r < size; ++r) {
    const auto card = roster.card(r);
    if (card.size() != sizeof mine) {
      throw Error(ErrorCode::mismatch,
                  "rank " + std::to_string(r) + " runs another, incompatible version of Tutti", r);
    }
    std::memcpy(&cards[static_cast<std::size_t>(r)], card.data(), card.size());
  }
  return connect(std::move(host_peers), std::move(network), rank, cards, roster.session_secret,
                 options);
}

Session open_subsession(RankGroup& parent, const Geometry& geometry, RankGroup::Ranks ranks,
                        const Options& options) {
  return {geometry,
          std::make_unique<RankGroup>(parent.shared_host_peers(), parent.shared_network(),
                                      std::move(ranks), geometry.shape, what_is_said(options),
                                      deadline_after(options.rendezvous_timeout))};
}

std::vector<Session> open_local_sessions(const std::vector<Options>& options) {
  const int size = static_cast<int>(options.size());
  const Geometry geometry = geometry_of(options.front(), 0);
  std::vector<std::shared_ptr<HostPeers>> peers;
  std::vector<std::shared_ptr<Network>> networks;
  std::vector<SessionCard> cards;
  for (const Options& o : options) {
    peers.push_back(std::make_shared<HostPeers>(o.host_id));
    networks.push_back(network_for(*parse_address("127.0.0.1", 0), o));
    cards.push_back(card_of(geometry, *peers.back(), networks.back().get(), o));
  }
  // Each rank waits for the others while it connects.
  std::array<std::byte, 32> secret;  // of sockets, which there are with TUTTI_APART alone
  wire::fill_random(secret);
  std::vector<Session> sessions(static_cast<std::size_t>(size));
  std::vector<std::exception_ptr> errors(sessions.size());
  run_side_by_side(sessions.size(), [&](std::size_t r) {
    try {
      sessions[r] = connect(peers[r], networks[r], static_cast<int>(r), cards, secret, options[r]);
    } catch (...) {
      errors[r] = std::current_exception();
    }
  });
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return sessions;
}

}  // namespace tutti
