// How long a call will take, from its plan and the constants of the machine.
//
// Every step of the plan gets a cost (cost.h), and a simulation (host_scenario.h) of all ranks says
// when the last one is done. Of many tiles a few are simulated, and the pace of the last ones goes
// on. Two bounds stand beside it: the memory cannot deliver more than its bandwidth, and where
// there are too many ranks to simulate, a closed form takes its place. With several hosts, an
// algorithm that addresses memory of another one is not possible.
//
// Buffers are taken to be where they fit (L2, L3, memory), as in a loop that repeats the call.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/cut.h"
#include "collectives/model/domains.h"
#include "collectives/model/gpu_constants.h"
#include "collectives/model/machine.h"

namespace tutti {

/// Where calls run: what all ranks of a communicator know of it.
struct Platform {
  Machine machine;
  int ranks = 1;
  int cores = 1;  // that the ranks may use together, on all hosts
  ConnectionShape links;
  std::size_t tile_bytes = 0;
  std::size_t least_piece = kLeastPiece;
  bool flags_in_data = false;  // as LL has them; else data come a way after what announces them
  bool wide_links = true;      // a wide plan can carry 16- and 8-bit floats as float32
  Domains domains{};           // last-level caches, of all hosts
  Domains hosts{};

  /// How plans are laid out.
  Domains layout() const { return laid_out(hosts, domains); }
  /// The most ranks that a host has, and the last-level caches of one.
  int ranks_of_a_host() const { return hosts.most(ranks); }
  int caches_of_a_host() const { return std::max(domains.count() / hosts.count(), 1); }
  friend bool operator==(const Platform&, const Platform&) = default;
};

/// Ranks on GPUs, each with thread blocks of its own.
Platform gpu_platform(int ranks);

/// What is called.
struct Workload {
  Collective collective = Collective::all_reduce;
  std::size_t bytes = 0;  // of the largest buffer, over all its blocks
  DataType type = DataType::uint8;
  Access access = Access::windows;
  bool round_once = false;  // only by an algorithm that does (rounding.h)
  bool invariant = false;   // only by one with invariant sums of `type` (Algorithm::invariant)
  bool compressed = false;  // only by one that does (Algorithm::compressed), and no other is
};

/// How a call is done, and how long it takes then.
struct Prediction {
  const Algorithm* algorithm = nullptr;  // none: by no plan
  bool possible = false;  // the algorithm can serve this rank count with these links and buffers
  double ns = 0;          // from the first rank's call until the last one's return
  std::size_t tiles = 1;
  // Of a platform:
  std::size_t tile_bytes = 0;  // of each block
  double memory_ns = 0;        // what the bandwidth of the memory alone takes of the time
  double moved = 0;            // bytes that the busiest rank reads and writes
  double across = 0;           // bytes that the busiest host sends to others, or receives
  bool simulated = false;      // else: the closed form
  // Of a described cluster (collectives/cluster):
  GpuProtocol protocol = GpuProtocol::simple;
  std::vector<std::vector<int>> orders{};  // of a host's ranks, by lane; none: the cluster's

  double us() const { return ns / 1000; }
};

/// More ranks than these are not simulated: a choice must not take longer than the calls it is for.
inline constexpr int kMostSimulatedRanks = 16;

/// Of more ranks: from the parts of all ranks of some hosts, or from one part alone, which gives
/// about the least time that it can be.
enum class Sample : std::uint8_t { typical, one };

/// Thread-safe. Takes microseconds to a few milliseconds; of many ranks on several hosts, much
/// longer, unless from one part.
Prediction predict(const Algorithm& algorithm, const Workload& workload, const Platform& platform,
                   Sample sample = Sample::typical);

}  // namespace tutti
