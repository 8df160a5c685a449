#include "comm/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <utility>

#include "bootstrap/rendezvous.h"
#include "bootstrap/rendezvous_protocol.h"
#include "core/background.h"
#include "core/host.h"
#include "core/log.h"
#include "core/settings.h"
#include "device/board.h"
#include "topology/place.h"
#include "transport/gpu_memory.h"
#include "transport/nameplate.h"
#include "transport/socket.h"
#include "transport/tcp_socket.h"

namespace tutti {
namespace {

constexpr std::uint32_t kVersion = 13;

/// The key of a rank's network. The other ranks of a meeting are to know it; a reader of what they
/// hand round is not.
struct HiddenKey {
  wire::Bytes32 salt{};
  wire::Bytes32 bytes{};
};

/// Covers `key`, or uncovers a covered one.
wire::Bytes32 covered(wire::Bytes32 key, const wire::Bytes32& salt, const wire::Bytes32& secret) {
  const wire::Bytes32 cover = wire::hash(secret, "network key", {salt});
  for (std::size_t i = 0; i < key.size(); ++i) key[i] ^= cover[i];
  return key;
}

HiddenKey hidden(const wire::Bytes32& key, const wire::Bytes32& secret) {
  HiddenKey h;
  wire::fill_random(h.salt);
  h.bytes = covered(key, h.salt, secret);
  return h;
}

struct SessionCard {
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

RankCard what_is_said(const Options& options) {
  return {setting_boolean("TUTTI_CMA"),
          [gpu = options.gpu](ControlBlock& own) { device_card(own).ordinal = gpu; }};
}

/// Where the rank's GPU is in this host's graph; -1: it has none, or the graph does not.
int node_of(const topology::Graph& graph, int gpu) {
  return gpu < 0 ? -1 : topology::gpu_node(graph, gpu_address(gpu), gpu);
}

/// `secret`: of the place where the ranks meet.
SessionCard card_of(const Geometry& g, HostPeers& host_peers, const Network* network,
                    const wire::Bytes32& secret, const Options& options) {
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

/// The network to ranks on other hosts, which meet this one at `place`: the one that there is, or a
/// new one; null where there can be no such ranks.
std::shared_ptr<Network> network_for(const Membership& membership, const SocketAddress& place,
                                     const Options& options) {
  if (membership.network != nullptr) return membership.network;
  const SocketAddress own = own_address(place, membership.interfaces);
  // Ranks that meet at a loopback address are on this host, unless hosts were told apart by hand.
  if (is_loopback(own) && membership.host_id.empty()) return nullptr;
  return std::make_shared<Network>(
      own, membership.interfaces, membership.host_peers->identity(),
      [&](std::span<const std::string> ports) { return nearest_of(ports, options); });
}

/// The protection of data to other hosts that rank 0 asks for. Throws Error(mismatch) where a rank
/// asks for more: it would believe that it has that.
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

/// What one rank knows of a meeting.
struct Met {
  int rank = 0;
  std::span<const SessionCard> cards;  // by rank
  std::vector<int> numbers;            // of the ranks as peers
  wire::Bytes32 secret;                // of the place
};

/// Makes the ranks of the meeting known to `network`.
void begin(Network* network, const HostPeers& host_peers, const Met& met) {
  // Where one cannot do as it was told, all hear of it.
  if (network != nullptr) network->check();
  std::map<int, Network::Peer> peers;
  for (std::size_t r = 0; r < met.cards.size(); ++r) {
    const SessionCard& card = met.cards[r];
    const int rank = static_cast<int>(r);
    if (rank == met.rank) continue;
    check_offer(card.network.wires, rank);
    const bool here =
        card.host_peers.host == met.cards[static_cast<std::size_t>(met.rank)].host_peers.host;
    if (here || (network != nullptr && card.network.get())) {
      peers[met.numbers[r]] = {card.network, card.host_peers.identity,
                               covered(card.network_key.bytes, card.network_key.salt, met.secret),
                               rank, here};
      continue;
    }
    const auto host_name = [&](int its) {
      return host_peers.peer(met.numbers[static_cast<std::size_t>(its)])->host_name;
    };
    throw Error(ErrorCode::system,
                fmt::format("rank {} runs on another host ({}), or in another network namespace, "
                            "than rank {} ({}), but they meet at a loopback address: set "
                            "TUTTI_ADDRESS to an address of rank 0's host that the others reach",
                            r, host_name(rank), met.rank, host_name(met.rank)),
                rank);
  }
  network->add(met.numbers[static_cast<std::size_t>(met.rank)], met.rank, met.cards.size(),
               std::move(peers), agreed_protection(met.cards));
}

/// What a host's ranks share.
struct HostShare {
  CoreSet cores;
  std::uint64_t ranks = 0;
};

/// What the cards say of the communicator to be.
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
                      hosts.size() == cards.size());
  g.domains = Domains::on_hosts(host_of, domains);
  g.hosts = Domains(host_of);
  return g;
}

/// Throws Error(mismatch), on all ranks alike, unless all ask for it or none does.
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

/// Connects to everybody and makes the segments. `network`: as the card says, or null. `name`: of
/// the communicator; none: one that nobody has known before.
Session connect(std::shared_ptr<Membership> membership, std::shared_ptr<Network> network, int rank,
                std::span<const SessionCard> cards, const wire::Bytes32& place_secret,
                const wire::Bytes32& session_secret, const Options& options, Deadline deadline,
                std::optional<std::uint64_t> name = {}) {
  std::vector<HostPeerAddress> addresses;
  std::vector<std::uint64_t> keys;
  for (const SessionCard& card : cards) {
    if (card.version != kVersion) {
      throw Error(ErrorCode::mismatch, "rank " + std::to_string(addresses.size()) +
                                           " runs another, incompatible version of Tutti");
    }
    addresses.push_back(card.host_peers);
    keys.push_back(card.host_peers.key);
  }
  agree_on_invariance(cards);
  HostPeers& host_peers = *membership->host_peers;
  const auto is_lost = [&](int number) {
    return network == nullptr || network->has_hung_up(number);
  };
  Met met{rank, cards, host_peers.meet(rank, addresses, session_secret, deadline, is_lost),
          place_secret};
  if (membership->network != nullptr) {
    membership->network->forget_unless(
        [&](int number) { return host_peers.peer(number) != nullptr; });
  }
  Session session;
  session.geometry = geometry_of(cards, rank);
  const int hosts = session.geometry.hosts.count();
  if (hosts > 1) {
    begin(network.get(), host_peers, met);
    membership->network = network;
  }
  if (rank == 0) {
    log().debug("{} ranks on {} hosts, {} cores with {} last-level caches", cards.size(), hosts,
                session.geometry.cores, session.geometry.domains.count());
  }
  const std::uint64_t id = name.value_or(keys.front());
  session.group = std::make_unique<RankGroup>(
      membership->host_peers, hosts > 1 ? std::move(network) : nullptr,
      RankGroup::Ranks{rank, std::move(met.numbers), std::move(keys), id}, session.geometry.shape,
      what_is_said(options), deadline);
  session.membership = std::move(membership);
  return session;
}

struct MeetingCall {
  const UniqueId& id;
  int rank, size;
  const Reunion* reunion;
};

/// `cards`: empty; those of the meeting, once there are any.
Session meet_and_connect(const MeetingCall& call, const Options& options,
                         std::shared_ptr<Membership> membership, std::vector<SessionCard>& cards) {
  const Deadline deadline = deadline_after(options.rendezvous_timeout);
  const auto shown =
      show_meeting(call.rank, call.size, std::hash<std::string>{}(to_string(call.id)));
  const wire::Ticket place = wire::decode(call.id);
  std::shared_ptr<Network> network;
  SessionCard mine;
  try {
    if (membership == nullptr) membership = std::make_shared<Membership>(options);
    network = network_for(*membership, place.address, options);
    mine = card_of(geometry_of(options, call.rank), *membership->host_peers, network.get(),
                   place.secret, options);
  } catch (const Error& error) {
    refuse_rendezvous(call.id, call.rank, call.size, error, call.reunion);
    throw;
  }
  const Roster roster = rendezvous(call.id, call.rank, call.size, wire::bytes_of(mine),
                                   options.rendezvous_timeout, call.reunion);
  cards.resize(static_cast<std::size_t>(call.size));
  for (int r = 0; r < call.size; ++r) {
    const auto card = roster.card(r);
    if (card.size() != sizeof mine) {
      throw Error(ErrorCode::mismatch,
                  "rank " + std::to_string(r) + " runs another, incompatible version of Tutti", r);
    }
    std::memcpy(&cards[static_cast<std::size_t>(r)], card.data(), card.size());
  }
  return connect(std::move(membership), std::move(network), call.rank, cards, place.secret,
                 roster.session_secret, options, deadline,
                 call.reunion ? std::optional(call.reunion->about().communicator()) : std::nullopt);
}

/// Of the rank that `thrown` says is gone; 0: it says so of none, or its card has not come.
std::uint64_t identity_of_lost(const std::exception& thrown, std::span<const SessionCard> cards) {
  const auto* const error = dynamic_cast<const Error*>(&thrown);
  const bool is_known = error != nullptr && error->code() == ErrorCode::peer_lost &&
                        error->rank() >= 0 && std::cmp_less(error->rank(), cards.size());
  return is_known ? cards[static_cast<std::size_t>(error->rank())].host_peers.identity : 0;
}

/// `membership`: of this rank; null: it has none yet.
Session open(const MeetingCall& call, const Options& options,
             const std::shared_ptr<Membership>& membership) {
  std::vector<SessionCard> cards;
  try {
    return meet_and_connect(call, options, membership, cards);
  } catch (const std::exception& e) {
    if (membership == nullptr || (call.reunion == nullptr && cards.empty())) throw;
    // Others may be further, and wait for this rank, which lives on.
    const std::uint64_t name = call.reunion != nullptr ? call.reunion->about().communicator()
                                                       : cards.front().host_peers.key;
    membership->host_peers->give_up(name, identity_of_lost(e, cards));
    if (membership->network != nullptr) membership->network->refuse(name, -1);
    throw;
  }
}

}  // namespace

Geometry geometry_of(const Options& options, int rank) {
  Geometry g;
  g.shape = {options.slots, (options.slot_bytes + kCacheLine - 1) / kCacheLine * kCacheLine};
  g.tile_bytes = setting_bytes("TUTTI_TILE_BYTES");
  g.windows = setting_boolean("TUTTI_WINDOWS");
  g.round_once = options.round_once;
  g.invariant = options.invariant;
  if (rank == 0) g.machine = used_machine().machine;
  return g;
}

ConnectionShape links_for(ConnectionShape wish, int ranks, bool crowded, bool one_per_host) {
  constexpr std::size_t kLeast = 8;
  constexpr std::size_t kMost = 32;
  // That all of a rank's links are to have, about.
  constexpr std::size_t kLinksBytes = std::size_t{8} << 20;
  const auto links = static_cast<std::size_t>(std::max(ranks - 1, 1));
  if (wish.slot_bytes == 0) {
    constexpr std::size_t kNear = std::size_t{64} << 10, kFar = std::size_t{512} << 10;
    wish.slot_bytes = one_per_host
                          ? std::clamp(kLinksBytes / links / kLeast / kNear * kNear, kNear, kFar)
                          : kNear;
  }
  if (wish.slots > 0) return wish;
  // Ranks that share a core share its caches: the less data goes round, the more stays there.
  if (crowded) return {kMost, wish.slot_bytes, kLeast};
  // Else a link should exceed a core's L2 cache (transport/connection.h).
  return {kMost, wish.slot_bytes, std::clamp(kLinksBytes / links / wish.slot_bytes, kLeast, kMost)};
}

Session open_session(const UniqueId& id, int rank, int size, const Options& options,
                     std::shared_ptr<Membership> membership) {
  return open({id, rank, size, nullptr}, options, membership);
}

Session open_session(const Reunion& reunion, const Options& options,
                     std::shared_ptr<Membership> membership) {
  return open({reunion.id(), reunion.rank(), reunion.size(), &reunion}, options, membership);
}

Session open_subsession(RankGroup& parent, const Geometry& geometry,
                        std::shared_ptr<Membership> membership, RankGroup::Ranks ranks,
                        const Options& options) {
  return {geometry, std::move(membership),
          std::make_unique<RankGroup>(parent.shared_host_peers(), parent.shared_network(),
                                      std::move(ranks), geometry.shape, what_is_said(options),
                                      deadline_after(options.rendezvous_timeout))};
}

std::vector<Session> open_local_sessions(const std::vector<Options>& options) {
  const int size = static_cast<int>(options.size());
  const Geometry geometry = geometry_of(options.front(), 0);
  wire::Bytes32 secret;  // of sockets, which there are with TUTTI_APART alone
  wire::fill_random(secret);
  std::vector<std::shared_ptr<Membership>> memberships;
  std::vector<std::shared_ptr<Network>> networks;
  std::vector<SessionCard> cards;
  for (const Options& o : options) {
    memberships.push_back(std::make_shared<Membership>(o));
    networks.push_back(network_for(*memberships.back(), *parse_address("127.0.0.1", 0), o));
    cards.push_back(
        card_of(geometry, *memberships.back()->host_peers, networks.back().get(), secret, o));
  }
  // Each rank waits for the others while it connects.
  std::vector<Session> sessions(static_cast<std::size_t>(size));
  std::vector<std::exception_ptr> errors(sessions.size());
  run_side_by_side(sessions.size(), [&](std::size_t r) {
    try {
      sessions[r] = connect(memberships[r], networks[r], static_cast<int>(r), cards, secret, secret,
                            options[r], deadline_after(options[r].rendezvous_timeout));
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
