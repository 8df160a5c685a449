// See tour.h. Exact: M. Held, R. Karp, "A dynamic programming approach to sequencing problems",
// 1962. Else nearest neighbours from several starts, improved by moving pieces (which keeps
// directions, as costs differ by direction).
#include "collectives/model/tour.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numeric>

namespace tutti {
namespace {

constexpr int kAlwaysExact = 11, kMostExact = 17;
constexpr int kStarts = 8, kSweeps = 24;
// No tour is improved for longer than a tenth of a second.
constexpr double kMostSteps = 1e8;

std::size_t group_index(int i) { return static_cast<std::size_t>(i); }

class Search {
 public:
  Search(const std::vector<double>& costs, int n) : c_(costs), n_(n) {}

  std::vector<int> exact() {
    // best[set][last]: from city 0 through all of a set that ends with `last`; cities from 1 on.
    const int m = n_ - 1;
    const std::size_t sets = std::size_t{1} << m;
    steps_ += static_cast<double>(sets) * m * m / 4;
    std::vector<double> best(sets * static_cast<std::size_t>(m),
                             std::numeric_limits<double>::infinity());
    std::vector<std::int8_t> before(best.size(), -1);
    const auto place = [&](std::size_t set, int last) {
      return set * static_cast<std::size_t>(m) + static_cast<std::size_t>(last);
    };
    for (int i = 0; i < m; ++i) best[place(std::size_t{1} << i, i)] = cost(0, i + 1);
    for (std::size_t set = 1; set < sets; ++set) {
      for (int last = 0; last < m; ++last) {
        const double here = best[place(set, last)];
        if (!(set >> last & 1)) continue;
        for (int next = 0; next < m; ++next) {
          if (set >> next & 1) continue;
          const std::size_t to = place(set | std::size_t{1} << next, next);
          const double there = here + cost(last + 1, next + 1);
          if (there > best[to]) continue;  // of equals the latest: natural orders
          best[to] = there;
          before[to] = static_cast<std::int8_t>(last);
        }
      }
    }
    int last = 0;
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < m; ++i) {
      const double all = best[place(sets - 1, i)] + cost(i + 1, 0);
      if (all <= least) least = all, last = i;
    }
    std::vector<int> tour;
    for (std::size_t set = sets - 1; last >= 0;) {
      tour.push_back(last + 1);
      const int previous = before[place(set, last)];
      set &= ~(std::size_t{1} << last);
      last = previous;
    }
    tour.push_back(0);
    std::ranges::reverse(tour);
    return tour;
  }

  std::vector<int> improved() {
    std::vector<int> best;
    double least = std::numeric_limits<double>::infinity();
    for (int s = 0; s < std::min(kStarts, n_); ++s) {
      std::vector<int> tour = nearest(s * n_ / std::min(kStarts, n_));
      steps_ += n_ * n_;
      for (int sweep = 0; sweep < kSweeps && steps_ < kMostSteps; ++sweep) {
        if (!move_pieces(tour)) break;
      }
      const double all = length(tour);
      if (all < least - 1e-12) least = all, best = tour;
      if (steps_ >= kMostSteps) break;
    }
    std::ranges::rotate(best, std::ranges::find(best, 0));
    return best;
  }

  double length(const std::vector<int>& tour) const {
    double sum = cost(tour.back(), tour.front());
    for (std::size_t i = 1; i < tour.size(); ++i) sum += cost(tour[i - 1], tour[i]);
    return sum;
  }

  /// Each city is left once, and reached once: the least that leaving costs, and what reaching
  /// costs beyond.
  double at_least() const {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    const auto n = static_cast<std::size_t>(n_);
    std::vector<double> leaving(n, kNone), reaching(n, kNone);
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        if (i != j) leaving[i] = std::min(leaving[i], c_[i * n + j]);
      }
    }
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) {
        if (i != j) reaching[j] = std::min(reaching[j], c_[i * n + j] - leaving[i]);
      }
    }
    return std::accumulate(leaving.begin(), leaving.end(), 0.0) +
           std::accumulate(reaching.begin(), reaching.end(), 0.0);
  }

  double steps() const { return steps_; }

 private:
  double cost(int a, int b) const { return c_[static_cast<std::size_t>(a * n_ + b)]; }

  std::vector<int> nearest(int start) const {
    std::vector<int> tour{start};
    std::vector<bool> seen(static_cast<std::size_t>(n_));
    seen[static_cast<std::size_t>(start)] = true;
    while (static_cast<int>(tour.size()) < n_) {
      int next = -1;
      // After itself first, so that equal costs give the natural order.
      for (int k = 1; k < n_; ++k) {
        const int i = (tour.back() + k) % n_;
        if (seen[static_cast<std::size_t>(i)]) continue;
        if (next < 0 || cost(tour.back(), i) < cost(tour.back(), next) - 1e-12) next = i;
      }
      seen[static_cast<std::size_t>(next)] = true;
      tour.push_back(next);
    }
    return tour;
  }

  /// Moves pieces of up to three cities to where they cost less; whether any was moved.
  bool move_pieces(std::vector<int>& t) {
    bool moved = false;
    const auto n = static_cast<std::size_t>(n_);
    const auto at = [&](std::size_t i) { return t[i < n ? i : i - n]; };
    for (std::size_t size = 1; size <= 3 && size + 2 <= n; ++size) {
      for (std::size_t i = 0; i < n; ++i) {
        // The piece is i+1 .. i+size.
        const int a = at(i), first = at(i + 1), last = at(i + size), b = at(i + size + 1);
        const double saved = cost(a, first) + cost(last, b) - cost(a, b);
        ++steps_;
        if (saved <= 1e-12) continue;
        steps_ += 2 * n_;
        std::size_t best = 0;
        double gain = 1e-9;
        for (std::size_t j = i + size + 1; j < i + n; ++j) {
          const double paid = cost(at(j), first) + cost(last, at(j + 1)) - cost(at(j), at(j + 1));
          if (saved - paid > gain) gain = saved - paid, best = j;
        }
        if (best == 0) continue;
        steps_ += n_;
        std::vector<int> next;
        next.reserve(n);
        for (std::size_t j = i + size + 1; j <= best; ++j) next.push_back(at(j));
        for (std::size_t k = 1; k <= size; ++k) next.push_back(at(i + k));
        for (std::size_t j = best + 1; j <= i + n; ++j) next.push_back(at(j));
        t = std::move(next);
        moved = true;
      }
    }
    return moved;
  }

  const std::vector<double>& c_;
  int n_;
  double steps_ = 0;
};

}  // namespace

CheapestTour cheapest_tour(const std::vector<double>& costs, int n, bool exact) {
  if (n == 1) return {{0}, 0, 1};
  Search search(costs, n);
  CheapestTour found;
  const bool thorough = n <= kAlwaysExact || (exact && n <= kMostExact);
  found.order = thorough ? search.exact() : search.improved();
  found.at_least = thorough ? search.length(found.order) : search.at_least();
  found.steps = search.steps() + 2.0 * n * n;
  return found;
}

CheapestTour cheapest_tour(const std::vector<double>& costs, int n,
                           const std::vector<std::vector<int>>& groups, bool exact) {
  const auto m = static_cast<int>(groups.size());
  if (m == n) return cheapest_tour(costs, n, exact);
  const auto cost = [&](int from, int to) {
    return costs[static_cast<std::size_t>(from) * static_cast<std::size_t>(n) +
                 static_cast<std::size_t>(to)];
  };
  const auto place = [m](int from, int to) {
    return static_cast<std::size_t>(from) * static_cast<std::size_t>(m) +
           static_cast<std::size_t>(to);
  };
  double within = 0;
  for (const auto& group : groups) {
    for (std::size_t i = 1; i < group.size(); ++i) within += cost(group[i - 1], group[i]);
  }
  std::vector<double> between(static_cast<std::size_t>(m) * static_cast<std::size_t>(m));
  for (int a = 0; a < m; ++a) {
    for (int b = 0; b < m; ++b) {
      if (a != b)
        between[place(a, b)] = cost(groups[group_index(a)].back(), groups[group_index(b)].front());
    }
  }
  CheapestTour found = cheapest_tour(between, m, exact);
  found.at_least = within + (m == 1 ? cost(groups[0].back(), groups[0].front()) : 0);
  if (m > 1) {
    // A tour may come back to a group that has cities left: by way of it, a group may be nearer.
    for (int by = 0; by < m; ++by) {
      if (groups[group_index(by)].size() == 1) continue;
      for (int a = 0; a < m; ++a) {
        for (int b = 0; b < m; ++b) {
          const double round = between[place(a, by)] + between[place(by, b)];
          if (a != b) between[place(a, b)] = std::min(between[place(a, b)], round);
        }
      }
    }
    const CheapestTour nearer = cheapest_tour(between, m, exact);
    found.at_least += nearer.at_least;
    found.steps += nearer.steps + 1.0 * m * m * m;
  }
  std::vector<int> order;
  for (const int group : found.order) {
    order.insert(order.end(), groups[group_index(group)].begin(), groups[group_index(group)].end());
  }
  found.order = std::move(order);
  return found;
}

}  // namespace tutti
