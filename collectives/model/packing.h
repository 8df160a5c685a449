// How much goes through links that are shared: given what one unit of each way of doing something
// puts on each link, the amounts of each way that are largest together. A linear program, solved by
// column generation: ways are not listed, but asked for by price, so that there may be as many as
// there are orders of ranks.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "collectives/model/budget.h"

namespace tutti {

/// What one unit of a way puts on links: link, amount. Each link once.
using Load = std::vector<std::pair<int, double>>;

struct Packed {
  std::vector<Load> ways;       // those that are used
  std::vector<int> ids;         // as the caller numbered them
  std::vector<double> amounts;  // of each, all > 0
  double sum = 0;
  bool complete = true;  // no way could add anything; else the rounds, or the budget, were over
};

/// `offer`: a way with the least price (sum of load times price of link) that the caller finds, and
/// its number; an empty load where there is none. The caller spends from the budget what offers
/// take, and pack() what it takes itself. With more links than the budget allows, pack() does not
/// begin. The same offers give the same answer, on every machine: nothing here depends on time.
Packed pack(const std::vector<double>& capacities,
            const std::function<std::pair<int, Load>(const std::vector<double>& prices)>& offer,
            int rounds, Budget& budget);

}  // namespace tutti
