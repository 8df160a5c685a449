// From "rank r of n with this id" to connected ranks: the card that a rank hands in at the
// rendezvous, and the communicator state that comes out. A rank may meet others again later: those
// that it knows already stay connected.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "bootstrap/rendezvous.h"
#include "bootstrap/unique_id.h"
#include "collectives/cut.h"
#include "collectives/model/domains.h"
#include "collectives/model/gpu_places.h"
#include "collectives/model/machine.h"
#include "comm/communicator.h"
#include "comm/membership.h"
#include "transport/rank_group.h"

namespace tutti {

/// What all ranks of a communicator agree on; rank 0's settings.
struct Geometry {
  ConnectionShape shape;  // of links; 0 slots: not chosen yet
  std::size_t tile_bytes = 0;
  bool windows = true;
  bool round_once = false;
  bool invariant = false;
  std::uint64_t cores = 1;       // that the ranks may use together, on all hosts
  std::uint64_t cores_here = 1;  // the same of this host
  Machine machine;               // what things cost, for the choice of algorithms
  Domains domains;               // last-level caches, of all hosts
  Domains hosts;
  std::vector<GpuPlace> gpus;  // by rank
};

struct Session {
  Geometry geometry;
  std::shared_ptr<Membership> membership;
  std::unique_ptr<RankGroup> group;
};

/// Meets the other ranks and connects to those that it does not know yet. Collective.
/// `membership`: of this rank, where it has one; null: this is its first communicator.
Session open_session(const UniqueId& id, int rank, int size, const Options& options,
                     std::shared_ptr<Membership> membership = nullptr);
/// The same where the ranks have each other's handles.
Session open_session(const Reunion& reunion, const Options& options,
                     std::shared_ptr<Membership> membership);
/// Some ranks of `parent`. Collective over them.
Session open_subsession(RankGroup& parent, const Geometry& geometry,
                        std::shared_ptr<Membership> membership, RankGroup::Ranks ranks,
                        const Options& options);
/// As many ranks of this process at once as there are options.
std::vector<Session> open_local_sessions(const std::vector<Options>& options);

/// This rank's settings; only rank 0 has to know the machine. How many slots links have is
/// left open, unless the options say so.
Geometry geometry_of(const Options& options, int rank);
/// The links of `ranks` ranks, where `wish` leaves the slots open. `crowded`: somewhere there are
/// more ranks than cores. `one_per_host`: each rank is on a host of its own.
ConnectionShape links_for(ConnectionShape wish, int ranks, bool crowded, bool one_per_host);
/// As cut() wants it.
inline std::size_t least_piece(const Geometry& g, int ranks) {
  return ranks > 1 && g.hosts.count() == ranks ? kLeastFarPiece : kLeastPiece;
}

}  // namespace tutti
