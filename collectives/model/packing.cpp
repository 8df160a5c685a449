// See packing.h. The revised simplex method: the basis' inverse is kept and updated, and the prices
// are its duals. A way is worth one. A way that costs less comes in, and so does the slack of a
// link with a price below zero: capacity that is better left unused. Capacities are all positive,
// so doing nothing is a first solution. Rings fill many links at once, so most corners are
// degenerate; ties are broken lexicographically, which never comes back to a basis, whatever order
// ways come in (G. Dantzig, A. Orden, P. Wolfe, 1955).
#include "collectives/model/packing.h"

#include <algorithm>
#include <cmath>

namespace tutti {
namespace {

constexpr double kEpsilon = 1e-9;
// A way has to be worth so much more than its price: a smaller difference is rounding.
constexpr double kWorth = 1e-7;
// An answer within this part of the best one is called the best.
constexpr double kProof = 1e-6;
// Amounts that are so much beyond a link's capacity are reckoned again.
constexpr double kDrift = 1e-7;
// Of some 800 links, that takes a second.
constexpr double kMostRenewal = 1e9;
// Of the budget that is left: fewer pivots than this lead nowhere.
constexpr double kLeastPivots = 64;

class Simplex {
 public:
  explicit Simplex(const std::vector<double>& capacities)
      : n_(capacities.size()),
        inverse_(n_ * n_),
        capacities_(capacities),
        amounts_(capacities),
        basis_(n_) {
    for (std::size_t i = 0; i < n_; ++i) {
      at(i, i) = 1;
      basis_[i] = -1 - static_cast<int>(i);
    }
  }

  std::vector<double> prices() const {
    std::vector<double> p(n_);
    for (std::size_t row = 0; row < n_; ++row) {
      if (basis_[row] < 0) continue;  // a link's slack is worth nothing, a way one
      for (std::size_t i = 0; i < n_; ++i) p[i] += inverse_[row * n_ + i];
    }
    return p;
  }

  /// Takes the way in (-1 - link: that link's slack), as much as fits; false: nothing limits it.
  bool enter(int way, const Load& load) {
    std::vector<double> column(n_);
    for (const auto& [link, amount] : load) {
      for (std::size_t row = 0; row < n_; ++row) {
        column[row] += inverse_[row * n_ + static_cast<std::size_t>(link)] * amount;
      }
    }
    std::size_t leaving = n_;
    for (std::size_t row = 0; row < n_; ++row) {
      if (column[row] < kEpsilon) continue;
      if (leaving == n_ || before(row, leaving, column)) leaving = row;
    }
    if (leaving == n_) return false;
    pivot(leaving, column);
    basis_[leaving] = way;
    return true;
  }

  /// How far the amounts are beyond a link's capacity, as a part of it: the rounding of one pivot
  /// goes on in the next.
  double excess(const std::vector<std::pair<int, Load>>& ways) const {
    std::vector<double> used(n_);
    for (std::size_t row = 0; row < n_; ++row) {
      if (basis_[row] < 0) continue;
      for (const auto& [link, amount] : ways[static_cast<std::size_t>(basis_[row])].second) {
        used[static_cast<std::size_t>(link)] += amount * amounts_[row];
      }
    }
    double most = 0;
    for (std::size_t i = 0; i < n_; ++i) most = std::max(most, used[i] / capacities_[i] - 1);
    return most;
  }

  /// The inverse from the basis alone, by elimination (Gauss and Jordan); false where it has none.
  bool renew(const std::vector<std::pair<int, Load>>& ways) {
    std::vector<double> b(n_ * n_);
    for (std::size_t column = 0; column < n_; ++column) {
      const int way = basis_[column];
      if (way < 0) {
        b[static_cast<std::size_t>(-1 - way) * n_ + column] = 1;
        continue;
      }
      for (const auto& [link, amount] : ways[static_cast<std::size_t>(way)].second) {
        b[static_cast<std::size_t>(link) * n_ + column] = amount;
      }
    }
    std::ranges::fill(inverse_, 0);
    for (std::size_t i = 0; i < n_; ++i) at(i, i) = 1;
    for (std::size_t i = 0; i < n_; ++i) {
      std::size_t largest = i;
      for (std::size_t row = i + 1; row < n_; ++row) {
        if (std::abs(b[row * n_ + i]) > std::abs(b[largest * n_ + i])) largest = row;
      }
      if (std::abs(b[largest * n_ + i]) < kEpsilon) return false;
      for (std::size_t k = 0; largest != i && k < n_; ++k) {
        std::swap(b[i * n_ + k], b[largest * n_ + k]);
        std::swap(at(i, k), at(largest, k));
      }
      const double pivot = b[i * n_ + i];
      for (std::size_t k = 0; k < n_; ++k) {
        b[i * n_ + k] /= pivot;
        at(i, k) /= pivot;
      }
      for (std::size_t row = 0; row < n_; ++row) {
        const double times = b[row * n_ + i];
        if (row == i || times == 0) continue;
        for (std::size_t k = 0; k < n_; ++k) {
          b[row * n_ + k] -= times * b[i * n_ + k];
          at(row, k) -= times * at(i, k);
        }
      }
    }
    find_amounts();
    return true;
  }

  /// Of one pivot, with the prices before it.
  static double steps(std::size_t links) {
    return 2 * static_cast<double>(links) * static_cast<double>(links);
  }
  double steps() const { return steps(n_); }
  double steps_of_renewal() const { return static_cast<double>(n_) * steps(); }

  const std::vector<int>& basis() const { return basis_; }
  double amount(std::size_t row) const { return amounts_[row]; }

 private:
  double& at(std::size_t row, std::size_t i) { return inverse_[row * n_ + i]; }

  /// Whether row `a` limits the way that comes in before row `b` does; of equals, as if each
  /// capacity were a little larger than it is, and each next one by far less.
  bool before(std::size_t a, std::size_t b, const std::vector<double>& column) const {
    double less = amounts_[a] / column[a] - amounts_[b] / column[b];
    for (std::size_t i = 0; i < n_ && std::abs(less) < kEpsilon; ++i) {
      less = inverse_[a * n_ + i] / column[a] - inverse_[b * n_ + i] / column[b];
    }
    return less < 0;
  }

  void pivot(std::size_t leaving, const std::vector<double>& column) {
    for (std::size_t i = 0; i < n_; ++i) at(leaving, i) /= column[leaving];
    for (std::size_t row = 0; row < n_; ++row) {
      const double times = column[row];
      if (row == leaving || times == 0) continue;
      for (std::size_t i = 0; i < n_; ++i) at(row, i) -= times * at(leaving, i);
    }
    find_amounts();
  }

  /// From the start again, so that what is rounded does not add up.
  void find_amounts() {
    for (std::size_t row = 0; row < n_; ++row) {
      double sum = 0;
      for (std::size_t i = 0; i < n_; ++i) sum += at(row, i) * capacities_[i];
      amounts_[row] = std::max(0.0, sum);
    }
  }

  std::size_t n_;
  std::vector<double> inverse_;
  std::vector<double> capacities_, amounts_;
  std::vector<int> basis_;  // by row: the way, or -1 - link: its slack
};

double price_of(const Load& load, const std::vector<double>& prices) {
  double sum = 0;
  for (const auto& [link, amount] : load) sum += amount * prices[static_cast<std::size_t>(link)];
  return sum;
}

/// The best amounts of the ways that are known; returns their prices.
std::vector<double> solve(Simplex& simplex, const std::vector<std::pair<int, Load>>& ways,
                          Budget& budget) {
  for (bool renewed = false;;) {
    std::vector<double> prices = simplex.prices();
    double most = kWorth;
    int way = -1;
    Load load;
    for (std::size_t link = 0; link < prices.size(); ++link) {
      if (-prices[link] <= most) continue;
      most = -prices[link];
      way = -1 - static_cast<int>(link);
      load = {{static_cast<int>(link), 1.0}};
    }
    for (std::size_t w = 0; w < ways.size(); ++w) {
      const double worth = 1 - price_of(ways[w].second, prices);
      if (worth > most) most = worth, way = static_cast<int>(w);
    }
    if (way >= 0) load = ways[static_cast<std::size_t>(way)].second;
    budget.spend(simplex.steps());
    const bool done = load.empty() || budget.is_spent();
    if (done && !renewed && simplex.excess(ways) > kDrift &&
        simplex.steps_of_renewal() < kMostRenewal) {
      budget.spend(simplex.steps_of_renewal());
      renewed = true;
      if (simplex.renew(ways)) continue;
    }
    if (done || !simplex.enter(way, load)) {
      for (double& p : prices) p = std::max(0.0, p);
      return prices;
    }
  }
}

}  // namespace

Packed pack(const std::vector<double>& capacities,
            const std::function<std::pair<int, Load>(const std::vector<double>& prices)>& offer,
            int rounds, Budget& budget) {
  // Capacities by the largest: limits of exactness are the same for all sizes.
  double largest = 0;
  for (const double c : capacities) largest = std::max(largest, c);
  std::vector<double> scaled = capacities;
  for (double& c : scaled) c /= largest > 0 ? largest : 1;
  Packed packed;
  if (kLeastPivots * Simplex::steps(scaled.size()) > budget.left()) {
    packed.complete = false;
    return packed;
  }
  Simplex simplex(scaled);
  std::vector<std::pair<int, Load>> ways;
  std::vector<double> prices = solve(simplex, ways, budget);
  double least = 0;  // price of a way that may still be missing
  for (int round = 0; round < rounds && !budget.is_spent(); ++round) {
    auto way = offer(prices);
    least = way.second.empty() ? 1 : price_of(way.second, prices);
    if (least > 1 - kProof) break;
    ways.push_back(std::move(way));
    prices = solve(simplex, ways, budget);
  }
  // What is still beyond a link after that is no proof, and made to fit.
  const double excess = simplex.excess(ways);
  const double fits = excess > kProof ? 1 / (1 + excess) : 1;
  for (std::size_t row = 0; row < simplex.basis().size(); ++row) {
    const int way = simplex.basis()[row];
    const double amount = simplex.amount(row) * largest * fits;
    if (way < 0 || amount <= 1e-6 * largest) continue;
    packed.ways.push_back(ways[static_cast<std::size_t>(way)].second);
    packed.ids.push_back(ways[static_cast<std::size_t>(way)].first);
    packed.amounts.push_back(amount);
    packed.sum += amount;
  }
  // Where no way costs less than one, no amounts are worth more than all links at their prices.
  double worth = 0;
  for (std::size_t i = 0; i < prices.size(); ++i) worth += prices[i] * capacities[i];
  packed.complete =
      least > 1 - kProof && fits == 1 && worth <= packed.sum * (1 + kProof) + kProof * largest;
  return packed;
}

}  // namespace tutti
