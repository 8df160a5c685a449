// Ways that all carry the same amount over links that they share: which ones, and how many, so that
// together they carry the most. A plan is like that, because its lanes have equal shares. packing.h
// says what ways with unequal shares could carry, which is a bound.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "collectives/model/packing.h"

namespace tutti {

struct EquallyPacked {
  std::vector<int> ids;  // of the ways, as the caller numbered them; one may come several times
  double each = 0;       // what each carries
  double sum() const { return each * static_cast<double>(ids.size()); }
};

/// As few as carry the most, `most` of them at the largest; one percent more is not worth another
/// way. `offer` as of pack(), asked so many times (`offers`) for each number of ways; `bound`: no
/// ways carry more together. The caller spends from the budget what offers take. Once the budget is
/// spent, the best ways so far are returned: one way at least. The same offers give the same
/// answer, on every machine.
EquallyPacked pack_equally(
    const std::vector<double>& capacities,
    const std::function<std::pair<int, Load>(const std::vector<double>& prices)>& offer, int most,
    int offers, double bound, Budget& budget);

}  // namespace tutti
