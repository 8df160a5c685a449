// What rings and trees put on the links of a graph, and the cheapest of them at given prices of
// links: the part of the search for lanes (lanes.h) that knows the graph. Links that data pass are
// rows, numbered in the order in which paths name them; packings (packing.h) know rows alone.
#pragma once

#include <vector>

#include "collectives/model/budget.h"
#include "collectives/model/lanes.h"
#include "collectives/model/packing.h"
#include "topology/graph.h"

namespace tutti {

// A ring that costs so much is not worth its price (packing.cpp).
constexpr double kEnoughPrice = 1 - 1e-6;

/// Orders in it name GPUs and ports by their index in gpus() and ports().
class LaneWays {
 public:
  /// Throws Error(invalid_argument) where there are no GPUs, too many, or no ports that are needed.
  LaneWays(const topology::Graph& graph, int host, const LanesRequest& request);

  const std::vector<int>& gpus() const { return gpus_; }
  const std::vector<int>& ports() const { return ports_; }
  const std::vector<double>& capacities() const { return capacities_; }
  /// The link of a row; -1: the row stands for ways that there are not.
  int link(int row) const { return links_[static_cast<std::size_t>(row)]; }

  struct Priced {
    LaneOrder order;
    Load load;
    double at_least = 0;  // no order's price is lower; 0 where nobody knows
  };
  /// `exact`: where the quick search does not end, a thorough one is tried, a few times.
  Priced cheapest_ring(const std::vector<double>& prices, bool exact, Budget& budget);
  Priced cheapest_tree(const std::vector<double>& prices, Budget& budget) const;
  Load load_of_ring(const LaneOrder& order) const;
  /// Of either shape.
  Load load_of(const LaneOrder& order) const;
  double price_of(const Load& load, const std::vector<double>& prices) const;

  /// GB/s that no lanes exceed, as each passes each GPU: what leaves the narrowest of them, or
  /// arrives there. Infinite where no link is a limit.
  double most_of_any_gpu() const;

 private:
  int count() const { return static_cast<int>(gpus_.size()); }
  int port_count() const { return static_cast<int>(ports_.size()); }
  std::vector<int> numbered(const topology::Path& path);
  const std::vector<int>& path(int a, int b) const;
  const std::vector<int>& path_out(int gpu, int port) const;
  const std::vector<int>& path_in(int port, int gpu) const;
  LaneOrder tour_by(const std::vector<double>& prices, int rail, bool exact, double& at_least,
                    Budget& budget);
  Load load_of_tree(const LaneOrder& order) const;

  const topology::Graph& graph_;
  LanesRequest request_;
  std::vector<int> gpus_, ports_;
  std::vector<std::vector<int>> between_, out_, in_;  // rows of paths
  std::vector<double> capacities_;                    // by row
  std::vector<int> links_;                            // by row
  std::vector<int> index_;                            // row of a link, or -1
  std::vector<std::vector<int>> devices_;             // GPUs by the device that they are parts of
  int no_way_ = -1;
  int thorough_;
  double steps_of_costs_ = 0;  // for all prices of paths
};

}  // namespace tutti
