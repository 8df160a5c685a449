// What all ranks of a communicator agree on when they meet: the sizes of links and tiles, what
// things cost, and which ranks are near each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/cut.h"
#include "collectives/model/domains.h"
#include "collectives/model/gpu_places.h"
#include "collectives/model/machine.h"
#include "comm/communicator.h"
#include "transport/host/connection.h"

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

/// This rank's settings; only rank 0 has to know the machine. How many slots links have is
/// left open, unless the options say so.
Geometry geometry_of(const Options& options, int rank);
/// The links of `ranks` ranks, where `wish` leaves the slots open. `crowded`: somewhere there are
/// more ranks than cores. `one_per_host`: each rank is on a host of its own. `l2_bytes`: of a core.
ConnectionShape links_for(ConnectionShape wish, int ranks, bool crowded, bool one_per_host,
                          double l2_bytes);
/// As cut() wants it.
inline std::size_t least_piece(const Geometry& g, int ranks) {
  return ranks > 1 && g.hosts.count() == ranks ? kLeastFarPiece : kLeastPiece;
}

}  // namespace tutti
