#include "comm/session.h"

#include <cstring>

#include "bootstrap/rendezvous.h"
#include "bootstrap/rendezvous_protocol.h"
#include "core/background.h"
#include "core/host.h"
#include "core/log.h"
#include "core/settings.h"
#include "transport/socket.h"

namespace tutti {
namespace {

constexpr std::uint32_t kVersion = 4;

struct SessionCard {
  std::uint32_t version = kVersion;
  std::uint16_t windows = 1;
  std::uint16_t round_once = 0;
  std::uint64_t slots = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t tile_bytes = 0;
  MeshAddress mesh;
  Machine machine;
  CoreSet cores;             // that this rank may run on
  std::int32_t domain = -1;  // domain_of() these
};
static_assert(sizeof(SessionCard) <= kMaxCardBytes);

LocalRank what_is_said(const Options& options) {
  return {setting_boolean("TUTTI_CMA"), options.gpu};
}

SessionCard card_of(const Geometry& g, const Mesh& mesh) {
  SessionCard card;
  card.windows = g.windows ? 1 : 0;
  card.round_once = g.round_once ? 1 : 0;
  card.slots = g.shape.slots;
  card.slot_bytes = g.shape.slot_bytes;
  card.tile_bytes = g.tile_bytes;
  card.mesh = mesh.address();
  card.machine = g.machine;
  card.cores = allowed_cores();
  card.domain = domain_of(card.cores);
  return card;
}

/// Connects `mesh` to everybody and makes the segments. `cards` by rank.
Session connect(std::shared_ptr<Mesh> mesh, int rank, const std::vector<SessionCard>& cards,
                std::span<const std::byte, 32> secret, const Options& options) {
  const auto deadline = deadline_after(options.rendezvous_timeout);
  std::vector<MeshAddress> addresses;
  std::vector<int> members;
  std::vector<std::uint64_t> keys;
  CoreSet cores;
  std::vector<int> domains;
  for (const SessionCard& card : cards) {
    if (card.version != kVersion) {
      throw Error(ErrorCode::mismatch, "rank " + std::to_string(addresses.size()) +
                                           " runs another, incompatible version of Tutti");
    }
    members.push_back(static_cast<int>(addresses.size()));
    addresses.push_back(card.mesh);
    keys.push_back(card.mesh.key);
    cores |= card.cores;
    domains.push_back(card.domain);
  }
  mesh->connect(rank, addresses, secret, deadline);
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
  g.cores = std::max<std::size_t>(cores.count(), 1);
  g.shape = links_for({first.slots, first.slot_bytes}, static_cast<int>(cards.size()), g.cores);
  g.domains = Domains(domains);
  if (rank == 0) {
    log().debug("{} ranks on {} cores with {} last-level caches", cards.size(), g.cores,
                g.domains.count());
  }
  session.group =
      std::make_unique<LocalGroup>(std::move(mesh), rank, std::move(members), std::move(keys),
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

ConnectionShape links_for(ConnectionShape wish, int ranks, std::uint64_t cores) {
  constexpr std::size_t kLeast = 8;
  constexpr std::size_t kMost = 32;
  if (wish.slots > 0) return wish;
  // Ranks that share a core share its caches: the less data goes round, the more stays there.
  if (static_cast<std::uint64_t>(ranks) > cores) return {kMost, wish.slot_bytes, kLeast};
  // Else a link should exceed a core's L2 cache (transport/connection.h), but all of a rank's links
  // not this much memory.
  constexpr std::size_t kLinksBytes = std::size_t{8} << 20;
  const auto links = static_cast<std::size_t>(std::max(ranks - 1, 1));
  return {kMost, wish.slot_bytes, std::clamp(kLinksBytes / links / wish.slot_bytes, kLeast, kMost)};
}

Session open_session(const UniqueId& id, int rank, int size, const Options& options) {
  auto mesh = std::make_shared<Mesh>();
  const SessionCard mine = card_of(geometry_of(options, rank), *mesh);
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
  return connect(std::move(mesh), rank, cards, roster.session_secret, options);
}

Session open_subsession(LocalGroup& parent, const Geometry& geometry, int rank,
                        std::vector<int> members, std::vector<std::uint64_t> keys,
                        const Options& options) {
  return {geometry,
          std::make_unique<LocalGroup>(parent.shared_mesh(), rank, std::move(members),
                                       std::move(keys), geometry.shape, what_is_said(options),
                                       deadline_after(options.rendezvous_timeout))};
}

std::vector<Session> open_local_sessions(const std::vector<Options>& options) {
  const int size = static_cast<int>(options.size());
  const Geometry geometry = geometry_of(options.front(), 0);
  std::vector<std::shared_ptr<Mesh>> meshes;
  std::vector<SessionCard> cards;
  for (int r = 0; r < size; ++r) {
    meshes.push_back(std::make_shared<Mesh>());
    cards.push_back(card_of(geometry, *meshes.back()));
  }
  // Each rank waits for the others while it connects.
  std::array<std::byte, 32> secret;  // of sockets, which there are with TUTTI_APART alone
  wire::fill_random(secret);
  std::vector<Session> sessions(static_cast<std::size_t>(size));
  std::vector<std::exception_ptr> errors(sessions.size());
  run_side_by_side(sessions.size(), [&](std::size_t r) {
    try {
      sessions[r] = connect(meshes[r], static_cast<int>(r), cards, secret, options[r]);
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
