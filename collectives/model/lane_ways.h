// What rings and trees put on links, and the cheapest of them at given prices of links. Links that
// data pass are rows here, of a graph (lanes.h) or of a described cluster (cluster/orders.h).
#pragma once

#include <vector>

#include "collectives/model/budget.h"
#include "collectives/model/lanes.h"
#include "collectives/model/packing.h"
#include "topology/graph.h"

namespace tutti {

// A ring that costs so much is not worth its price (packing.cpp).
constexpr double kEnoughPrice = 1 - 1e-6;

/// The ranks and ports of a host, and the rows that what goes from one to another passes.
struct RowsOfRanks {
  int ranks = 0, ports = 0;
  std::vector<double> capacities;         // by row
  std::vector<std::vector<int>> between;  // at from * ranks + to
  std::vector<std::vector<int>> out, in;  // at rank * ports + port, and port * ranks + rank
  std::vector<std::vector<int>> devices;  // ranks by the device that they are parts of
};

/// The rows of GPUs on a graph, numbered in the order in which paths name links.
struct RowsOfGraph {
  RowsOfRanks rows;
  std::vector<int> gpus, ports;  // nodes: those that are ranks
  std::vector<int> links;        // by row; -1: it stands for ways that there are not
};
/// Throws Error(invalid_argument) where there are no GPUs, too many, or no ports that are needed.
RowsOfGraph rows_of(const topology::Graph& graph, int host, const LanesRequest& request);

/// Orders in it name GPUs and ports by their numbers as ranks and ports.
class LaneWays {
 public:
  /// `cross_rails`: a ring may leave by another port than it came by.
  LaneWays(const RowsOfRanks& rows, bool cross_rails);

  struct Priced {
    LaneOrder order;
    Load load;
    double at_least = 0;  // no order's price is lower; 0 where nobody knows
  };
  /// `exact`: where the quick search does not end, a thorough one is tried, a few times.
  Priced cheapest_ring(const std::vector<double>& prices, bool exact, Budget& budget);
  Priced cheapest_tree(const std::vector<double>& prices, Budget& budget) const;
  Load load_of_ring(const LaneOrder& order) const;
  /// The load of an order of either shape.
  Load load_of(const LaneOrder& order) const;
  double price_of(const Load& load, const std::vector<double>& prices) const;

  /// GB/s that no lanes exceed, as each passes each GPU: what leaves the narrowest of them, or
  /// arrives there. Infinite where no link is a limit.
  double most_of_any_gpu() const;

 private:
  const std::vector<int>& path(int a, int b) const;
  const std::vector<int>& path_out(int gpu, int port) const;
  const std::vector<int>& path_in(int port, int gpu) const;
  LaneOrder tour_by(const std::vector<double>& prices, int rail, bool exact, double& at_least,
                    Budget& budget);
  Load load_of_tree(const LaneOrder& order) const;

  const RowsOfRanks& rows_;
  bool cross_rails_;
  int thorough_;
  double steps_of_costs_ = 0;  // for all prices of paths
};

}  // namespace tutti
