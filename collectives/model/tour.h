// The cheapest way around: all cities once and back, where there and back may cost different
// things.
#pragma once

#include <vector>

namespace tutti {

/// `costs`: from i to j at [i * n + j], none negative. Starts with city 0. Exact up to 11 cities
/// (and where `exact` asks for it up to 17); else by improving several good tours, the same ones
/// each time.
std::vector<int> cheapest_tour(const std::vector<double>& costs, int n, bool exact = false);

}  // namespace tutti
