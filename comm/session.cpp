// See session.h.
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
#include "comm/membership.h"
#include "comm/session_card.h"
#include "core/as_error.h"
#include "core/background.h"
#include "core/log.h"
#include "core/settings.h"
#include "device/board.h"
#include "topology/place.h"
#include "transport/host/nameplate.h"
#include "transport/sockets/own_addresses.h"
#include "transport/sockets/socket.h"

namespace tutti {
namespace {

RankCard what_is_said(const Options& options) {
  return {setting_boolean("TUTTI_CMA"),
          [gpu = options.gpu](ControlBlock& own) { device_card(own).ordinal = gpu; }};
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

/// What one rank knows of a meeting.
struct Met {
  int rank = 0;
  std::span<const SessionCard> cards;  // by rank
  std::vector<int> numbers;            // of the ranks as peers
  protocol::Bytes32 secret;            // of the place
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
                               network_key_in(card, met.secret), rank, here};
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

/// Connects to everybody and makes the segments. `network`: as the card says, or null. `name`: of
/// the communicator; none: one that nobody has known before.
Session connect(std::shared_ptr<Membership> membership, std::shared_ptr<Network> network, int rank,
                std::span<const SessionCard> cards, const protocol::Bytes32& place_secret,
                const protocol::Bytes32& session_secret, const Options& options, Deadline deadline,
                std::optional<std::uint64_t> name = {}) {
  std::vector<HostPeerAddress> addresses;
  std::vector<std::uint64_t> keys;
  for (const SessionCard& card : cards) {
    if (card.version != SessionCard::kVersion) {
      throw Error(ErrorCode::mismatch, "rank " + std::to_string(addresses.size()) +
                                           " runs another, incompatible version of Tutti");
    }
    addresses.push_back(card.host_peers);
    keys.push_back(card.host_peers.key);
  }
  agree_on_invariance(cards);
  agree_on_users(cards);
  HostPeers& host_peers = *membership->host_peers;
  const auto is_lost = [&](int number) {
    return network == nullptr || network->has_hung_up(number);
  };
  const std::uint64_t id = name.value_or(keys.front());
  Met met{rank, cards, host_peers.meet(rank, addresses, id, session_secret, deadline, is_lost),
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
  const protocol::Ticket place = protocol::decode(call.id);
  std::shared_ptr<Network> network;
  SessionCard mine;
  try {
    if (membership == nullptr) membership = std::make_shared<Membership>(options);
    network = network_for(*membership, place.address, options);
    mine = card_of(geometry_of(options, call.rank), *membership->host_peers, network.get(),
                   place.secret, options);
  } catch (const std::exception& e) {
    refuse_rendezvous(call.id, call.rank, call.size, as_error(e), call.reunion);
    throw;
  }
  const Roster roster = rendezvous(call.id, call.rank, call.size, protocol::bytes_of(mine),
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
    if (membership == nullptr) throw;
    // Others may be further, and wait for this rank, which lives on.
    std::optional<std::uint64_t> name;  // of the communicator, where this rank has heard it
    if (call.reunion != nullptr) {
      name = call.reunion->about().communicator();
    } else if (!cards.empty()) {
      name = cards.front().host_peers.key;
    }
    membership->host_peers->give_up(name.value_or(0), identity_of_lost(e, cards));
    if (name && membership->network != nullptr) membership->network->refuse(*name, -1);
    throw;
  }
}

}  // namespace

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
  protocol::Bytes32 secret;  // of sockets, which there are with TUTTI_APART alone
  protocol::fill_random(secret);
  std::vector<std::shared_ptr<Membership>> memberships;
  std::vector<std::shared_ptr<Network>> networks;
  std::vector<SessionCard> cards;
  for (const Options& o : options) {
    memberships.push_back(std::make_shared<Membership>(o));
    // They are all here, unless hosts were told apart by hand.
    networks.push_back(
        o.host_id.empty() ? nullptr : network_for(*memberships.back(), address_for_this_host(), o));
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
