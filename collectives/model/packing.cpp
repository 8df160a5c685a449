// See packing.h. The revised simplex method: the basis' inverse is kept and updated, the prices are
// its duals, and a way whose price is below one is worth more than what it displaces. Capacities
// are all positive, so doing nothing is a first solution.
#include "collectives/model/packing.h"

#include <algorithm>
#include <limits>

namespace tutti {
namespace {

constexpr double kEpsilon = 1e-9;

class Simplex {
 public:
  explicit Simplex(const std::vector<double>& capacities)
      : n_(capacities.size()), inverse_(n_ * n_), amounts_(capacities), basis_(n_, -1) {
    for (std::size_t i = 0; i < n_; ++i) at(i, i) = 1;
  }

  std::vector<double> prices() const {
    std::vector<double> p(n_);
    for (std::size_t row = 0; row < n_; ++row) {
      if (basis_[row] < 0) continue;  // a link's slack is worth nothing, a way one
      for (std::size_t i = 0; i < n_; ++i) p[i] += inverse_[row * n_ + i];
    }
    return p;
  }

  /// Takes the way in, as much as fits; false where nothing does (it is without limits).
  bool enter(int way, const Load& load) {
    std::vector<double> column(n_);
    for (const auto& [link, amount] : load) {
      for (std::size_t row = 0; row < n_; ++row) {
        column[row] += inverse_[row * n_ + static_cast<std::size_t>(link)] * amount;
      }
    }
    std::size_t leaving = n_;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t row = 0; row < n_; ++row) {
      if (column[row] < 1e-7) continue;
      const double ratio = amounts_[row] / column[row];
      // Of equals, a slack first, and then the lowest number: that ends, and is the same anywhere.
      const bool better = ratio < least - kEpsilon || (ratio < least + kEpsilon && leaving < n_ &&
                                                       basis_[row] < basis_[leaving]);
      if (leaving == n_ || better) {
        least = std::min(least, ratio);
        leaving = row;
      }
    }
    if (leaving == n_) return false;
    pivot(leaving, column);
    basis_[leaving] = way;
    return true;
  }

  const std::vector<int>& basis() const { return basis_; }
  double amount(std::size_t row) const { return amounts_[row]; }

 private:
  double& at(std::size_t row, std::size_t i) { return inverse_[row * n_ + i]; }

  void pivot(std::size_t leaving, const std::vector<double>& column) {
    const double by = column[leaving];
    for (std::size_t i = 0; i < n_; ++i) at(leaving, i) /= by;
    amounts_[leaving] /= by;
    for (std::size_t row = 0; row < n_; ++row) {
      const double times = column[row];
      if (row == leaving || times == 0) continue;
      for (std::size_t i = 0; i < n_; ++i) at(row, i) -= times * at(leaving, i);
      amounts_[row] = std::max(0.0, amounts_[row] - times * amounts_[leaving]);
    }
  }

  std::size_t n_;
  std::vector<double> inverse_;
  std::vector<double> amounts_;
  std::vector<int> basis_;  // by row: the way, or -1
};

}  // namespace

Packed pack(const std::vector<double>& capacities,
            const std::function<std::pair<int, Load>(const std::vector<double>& prices)>& offer,
            int rounds) {
  // Capacities by the largest: limits of exactness are the same for all sizes.
  double largest = 0;
  for (const double c : capacities) largest = std::max(largest, c);
  std::vector<double> scaled = capacities;
  for (double& c : scaled) c /= largest > 0 ? largest : 1;
  Simplex simplex(scaled);
  std::vector<std::pair<int, Load>> ways;
  Packed packed;
  packed.complete = false;
  for (int round = 0; round < rounds; ++round) {
    std::vector<double> prices = simplex.prices();
    for (double& p : prices) p = std::max(0.0, p);
    auto way = offer(prices);
    double price = 0;
    for (const auto& [link, amount] : way.second) {
      price += amount * prices[static_cast<std::size_t>(link)];
    }
    if (way.second.empty() || price > 1 - 1e-6) {
      packed.complete = true;
      break;
    }
    if (!simplex.enter(static_cast<int>(ways.size()), way.second)) break;
    ways.push_back(std::move(way));
  }
  for (std::size_t row = 0; row < simplex.basis().size(); ++row) {
    const int way = simplex.basis()[row];
    const double amount = simplex.amount(row) * largest;
    if (way < 0 || amount <= 1e-6 * largest) continue;
    packed.ways.push_back(ways[static_cast<std::size_t>(way)].second);
    packed.ids.push_back(ways[static_cast<std::size_t>(way)].first);
    packed.amounts.push_back(amount);
    packed.sum += amount;
  }
  return packed;
}

}  // namespace tutti
