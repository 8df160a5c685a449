// See equal_packing.h. Local search: it takes out one to three ways, and puts in the ways that are
// then the cheapest. A link's price is the amount that one more way over it adds to the sum of all
// links' loads, each to a high power. So the fullest links cost by far the most.
#include "collectives/model/equal_packing.h"

#include <algorithm>
#include <random>

namespace tutti {
namespace {

constexpr double kWorthOne = 1.01;
// Prices differ by up to so much by chance: of ways that cost the same, not always the same one.
constexpr double kNoise = 0.01;

class EqualSearch {
 public:
  using Offer = std::function<std::pair<int, Load>(const std::vector<double>&)>;
  EqualSearch(const std::vector<double>& capacities, const Offer& offer, int offers, double bound,
              Budget& budget)
      : capacities_(capacities),
        offer_(offer),
        offers_(offers),
        bound_(bound),
        budget_(budget),
        used_(capacities.size()) {}

  /// One way more than before.
  EquallyPacked next() {
    const auto count = ways_.size() + 1;
    fair_ = static_cast<double>(count) / bound_;
    add();
    keep_if_best(true);
    for (int offers = 1; offers < offers_ && best_sum() < bound_ * 0.999;) {
      if (budget_.is_spent()) break;
      const std::size_t out = std::min<std::size_t>(count, 1 + random_() % 3);
      for (std::size_t i = 0; i < out; ++i) remove(random_() % ways_.size());
      for (std::size_t i = 0; i < out; ++i, ++offers) add();
      if (!keep_if_best(false)) restore();
    }
    restore();
    EquallyPacked found;
    for (const auto& way : best_) found.ids.push_back(way.first);
    found.each = 1 / best_load_;
    return found;
  }

 private:
  using Way = std::pair<int, Load>;

  /// By multiplying alone, which gives the same on every machine.
  double cost_of(double used) const {
    const double two = (used / fair_) * (used / fair_), four = two * two;
    return four * four;
  }

  void add() {
    budget_.spend(4 * static_cast<double>(capacities_.size()));
    std::vector<double> prices(capacities_.size());
    for (std::size_t l = 0; l < prices.size(); ++l) {
      const double more = cost_of(used_[l] + 1 / capacities_[l]) - cost_of(used_[l]);
      prices[l] = more * (1 + kNoise * static_cast<double>(random_() % 1024) / 1024);
    }
    put(offer_(prices));
  }

  void put(Way way) {
    for (const auto& [link, amount] : way.second) use(link, amount);
    ways_.push_back(std::move(way));
  }

  void remove(std::size_t i) {
    for (const auto& [link, amount] : ways_[i].second) use(link, -amount);
    ways_.erase(ways_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  void use(int link, double amount) {
    const auto l = static_cast<std::size_t>(link);
    used_[l] += amount / capacities_[l];
  }

  double cost() const {
    double sum = 0;
    for (const double u : used_) sum += cost_of(u);
    return sum;
  }

  bool keep_if_best(bool anyway) {
    const double load = *std::ranges::max_element(used_);
    const double all = cost();
    if (!anyway && all > cost_) return false;
    cost_ = all;
    best_load_ = load;
    best_ = ways_;
    return true;
  }

  void restore() {
    ways_.clear();
    std::ranges::fill(used_, 0);
    for (const Way& way : std::vector<Way>(best_)) put(way);
  }

  double best_sum() const { return static_cast<double>(best_.size()) / best_load_; }

  const std::vector<double>& capacities_;
  const Offer& offer_;
  int offers_;
  double bound_;
  Budget& budget_;
  double fair_ = 0;           // what the fullest link has of its capacity when nothing is lost
  std::vector<double> used_;  // by link: ways over it, by its capacity
  std::vector<Way> ways_, best_;
  double cost_ = 0, best_load_ = 0;
  std::minstd_rand random_;
};

}  // namespace

EquallyPacked pack_equally(
    const std::vector<double>& capacities,
    const std::function<std::pair<int, Load>(const std::vector<double>& prices)>& offer, int most,
    int offers, double bound, Budget& budget) {
  EqualSearch search(capacities, offer, offers, bound, budget);
  EquallyPacked best;
  for (int count = 1; count <= most && best.sum() < bound * 0.99; ++count) {
    if (count > 1 && budget.is_spent()) break;
    EquallyPacked found = search.next();
    if (found.sum() > best.sum() * kWorthOne) best = std::move(found);
  }
  return best;
}

}  // namespace tutti
