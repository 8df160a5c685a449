// The cheapest way around: all cities once and back, where there and back may cost different
// things.
#pragma once

#include <vector>

namespace tutti {

struct CheapestTour {
  std::vector<int> order;  // starts with city 0
  double at_least = 0;     // no tour costs less; what this one costs, where it is exact
  double steps = 0;        // of work that it took (budget.h)
};

/// `costs`: from i to j at [i * n + j], none negative. Exact up to 11 cities (and where `exact`
/// asks for it up to 17); else by improving several good tours, the same ones each time, fewer of
/// them where cities are hundreds.
CheapestTour cheapest_tour(const std::vector<double>& costs, int n, bool exact = false);

/// Of tours in which the cities of a group follow one another, in their order, as the parts of a
/// device do. `groups`: all cities, each once; the first group begins with city 0. `at_least` is
/// for all tours in which each city costs the same to reach from within its group.
CheapestTour cheapest_tour(const std::vector<double>& costs, int n,
                           const std::vector<std::vector<int>>& groups, bool exact = false);

}  // namespace tutti
