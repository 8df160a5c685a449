// The cheapest way around: all cities once and back, where there and back may cost different
// things.
#pragma once

#include <vector>

namespace tutti {

struct CheapestTour {
  std::vector<int> order;  // starts with city 0
  double at_least = 0;     // no tour costs less; what this one costs, where it is exact
};

/// `costs`: from i to j at [i * n + j], none negative. Exact up to 11 cities (and where `exact`
/// asks for it up to 17); else by improving several good tours, the same ones each time.
CheapestTour cheapest_tour(const std::vector<double>& costs, int n, bool exact = false);

}  // namespace tutti
