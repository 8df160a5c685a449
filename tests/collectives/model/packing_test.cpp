// What the search for rings stands on: how much fits through shared links, compared with all
// corners of the linear program, and the cheapest way around, compared with all orders.
#include "collectives/model/packing.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "collectives/model/budget.h"
#include "collectives/model/equal_packing.h"
#include "collectives/model/tour.h"

namespace tutti {
namespace {

/// The cheapest of some ways.
auto offer_of(const std::vector<Load>& ways) {
  return [&ways](const std::vector<double>& prices) {
    std::size_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < ways.size(); ++i) {
      double price = 0;
      for (const auto& [l, a] : ways[i]) price += a * prices[static_cast<std::size_t>(l)];
      if (price < least) least = price, best = i;
    }
    return std::pair{static_cast<int>(best), ways[best]};
  };
}

TEST(Packing, FillsWhatIsShared) {
  Budget budget(kSearchSteps);
  // Two ways that share link 0, and one that needs link 1 twice.
  const std::vector<Load> ways{{{0, 1}}, {{0, 1}, {1, 1}}, {{1, 2}}};
  const Packed p = pack({10, 6}, offer_of(ways), 100, budget);
  EXPECT_TRUE(p.complete);
  EXPECT_NEAR(p.sum, 13, 1e-9);
}

TEST(Packing, EndsWithItsBudget) {
  // Half of the ways have been looked at: what they carry fits, and is not called the most.
  const std::vector<Load> ways{{{0, 1}}, {{1, 1}}};
  Budget budget(1e6);
  const Packed p = pack(
      {10, 6},
      [&](const std::vector<double>& prices) {
        budget.spend(6e5);
        return offer_of(ways)(prices);
      },
      100, budget);
  EXPECT_TRUE(budget.is_spent());
  EXPECT_FALSE(p.complete);
  EXPECT_GT(p.sum, 0);
  EXPECT_LE(p.sum, 16 + 1e-9);
  // Of a thousand links, a budget for a few pivots is none.
  Budget small(1e6);
  const Packed none = pack(std::vector<double>(1000, 1.0), offer_of(ways), 100, small);
  EXPECT_FALSE(none.complete);
  EXPECT_TRUE(none.ways.empty());
}

/// All corners of a small linear program, one after the other: the largest sum of ways.
double best_corner(const std::vector<Load>& ways, const std::array<double, 3>& capacities) {
  using Column = std::array<double, 3>;
  const auto det = [](const Column& a, const Column& b, const Column& c) {
    return a[0] * (b[1] * c[2] - b[2] * c[1]) - b[0] * (a[1] * c[2] - a[2] * c[1]) +
           c[0] * (a[1] * b[2] - a[2] * b[1]);
  };
  std::vector<Column> columns{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}};  // slacks
  for (const Load& way : ways) {
    Column& column = columns.emplace_back(Column{});
    for (const auto& [link, amount] : way) column[static_cast<std::size_t>(link)] = amount;
  }
  double best = 0;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    for (std::size_t j = i + 1; j < columns.size(); ++j) {
      for (std::size_t k = j + 1; k < columns.size(); ++k) {
        const Column &a = columns[i], &b = columns[j], &c = columns[k];
        const double all = det(a, b, c);
        if (std::abs(all) < 1e-9) continue;
        const double x = det(capacities, b, c) / all, y = det(a, capacities, c) / all,
                     z = det(a, b, capacities) / all;
        if (std::min({x, y, z}) < -1e-9) continue;
        best = std::max(best, (i < 3 ? 0 : x) + (j < 3 ? 0 : y) + (k < 3 ? 0 : z));
      }
    }
  }
  return best;
}

TEST(Packing, FindsTheBestCorner) {
  std::mt19937 random(1);
  const auto upto = [&](unsigned n) { return static_cast<int>(random() % (n + 1)); };
  for (int attempt = 0; attempt < 2000; ++attempt) {
    // Few different numbers, so that many corners are degenerate.
    std::array<double, 3> capacities{};
    for (double& c : capacities) c = 1 + upto(2);
    std::vector<Load> ways(6);
    for (Load& way : ways) {
      for (int link = 0; link < 3; ++link) {
        if (const int amount = upto(2); amount > 0) way.emplace_back(link, amount);
      }
      if (way.empty()) way.emplace_back(upto(2), 1);
    }
    // Not always the cheapest, but one that is cheap enough, as a quick search would.
    const auto offer = [&](const std::vector<double>& prices) {
      std::size_t found = 0;
      double least = 1e9;
      for (std::size_t i = 0; i < ways.size(); ++i) {
        double price = 0;
        for (const auto& [l, a] : ways[i]) price += a * prices[static_cast<std::size_t>(l)];
        if (least > 0.9 && price < least) least = price, found = i;
      }
      return std::pair{static_cast<int>(found), ways[found]};
    };
    Budget budget(kSearchSteps);
    const Packed p = pack({capacities.begin(), capacities.end()}, offer, 100, budget);
    EXPECT_TRUE(p.complete);
    EXPECT_NEAR(p.sum, best_corner(ways, capacities), 1e-5) << attempt;
  }
}

/// What so many ways carry that all carry the same, the best of all choices of them.
double best_of_all(const std::vector<Load>& ways, const std::vector<double>& capacities,
                   std::size_t first, int left, std::vector<double> used, int count) {
  if (left == 0) return count / *std::ranges::max_element(used);
  double best = 0;
  for (std::size_t w = first; w < ways.size(); ++w) {
    std::vector<double> more = used;
    for (const auto& [link, amount] : ways[w]) {
      const auto l = static_cast<std::size_t>(link);
      more[l] += amount / capacities[l];
    }
    best = std::max(best, best_of_all(ways, capacities, w, left - 1, more, count));
  }
  return best;
}

TEST(EqualPacking, IsAsGoodAsAllChoicesTried) {
  std::mt19937 random(4);
  const auto upto = [&](unsigned n) { return static_cast<int>(random() % (n + 1)); };
  int best = 0;
  constexpr int kAttempts = 300, kMost = 5;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::vector<double> capacities(4);
    for (double& c : capacities) c = 1 + upto(3);
    std::vector<Load> ways(5);
    for (Load& way : ways) {
      for (int link = 0; link < 4; ++link) {
        if (upto(1) > 0) way.emplace_back(link, 1 + upto(1));
      }
      if (way.empty()) way.emplace_back(upto(3), 1);
    }
    Budget budget(kSearchSteps);
    const double bound = pack(capacities, offer_of(ways), 100, budget).sum;
    const EquallyPacked found = pack_equally(capacities, offer_of(ways), kMost, 128, bound, budget);
    ASSERT_LE(found.ids.size(), static_cast<std::size_t>(kMost));
    std::vector<double> used(4);
    for (const int id : found.ids) {
      for (const auto& [link, amount] : ways[static_cast<std::size_t>(id)]) {
        used[static_cast<std::size_t>(link)] += amount * found.each;
      }
    }
    for (std::size_t l = 0; l < 4; ++l) EXPECT_LE(used[l], capacities[l] * (1 + 1e-9));
    double most = 0;
    for (int count = 1; count <= kMost; ++count) {
      most = std::max(most, best_of_all(ways, capacities, 0, count, std::vector<double>(4), count));
    }
    EXPECT_LE(found.sum(), most * (1 + 1e-9));
    EXPECT_LE(most, bound * (1 + 1e-6));
    EXPECT_GE(found.sum(), most * 0.74) << attempt;
    // Each way more has to be worth one percent.
    best += found.sum() > most * 0.985 ? 1 : 0;
  }
  fmt::print("{} of {} are the best\n", best, kAttempts);
  EXPECT_GE(best, kAttempts * 9 / 10);
}

TEST(EqualPacking, TakesNoMoreWaysThanItNeeds) {
  Budget budget(kSearchSteps);
  // Two thirds of what there is goes over link 0.
  const std::vector<Load> ways{{{0, 1}}, {{1, 1}}};
  const EquallyPacked found = pack_equally({2, 1}, offer_of(ways), 16, 128, 3, budget);
  EXPECT_EQ(found.ids.size(), 3u);
  EXPECT_EQ(std::ranges::count(found.ids, 0), 2);
  EXPECT_NEAR(found.each, 1, 1e-12);
  EXPECT_EQ(pack_equally({2, 1}, offer_of(ways), 2, 128, 3, budget).sum(), 2);
  const std::vector<Load> one{{{0, 1}}};
  EXPECT_EQ(pack_equally({5}, offer_of(one), 16, 128, 5, budget).ids.size(), 1u);
}

TEST(EqualPacking, EndsWithItsBudgetAndOneWayAtLeast) {
  const std::vector<Load> ways{{{0, 1}}, {{1, 1}}};
  Budget spent(0);
  EXPECT_EQ(pack_equally({2, 1}, offer_of(ways), 16, 128, 3, spent).ids.size(), 1U);
}

TEST(Tours, AreTheCheapest) {
  // Only the order 0 3 1 4 2 costs nothing.
  const int n = 5;
  std::vector<double> costs(n * n, 1.0);
  for (const auto& [a, b] : {std::pair{0, 3}, {3, 1}, {1, 4}, {4, 2}, {2, 0}}) {
    costs[static_cast<std::size_t>(a * n + b)] = 0;
  }
  EXPECT_EQ(cheapest_tour(costs, n).order, (std::vector<int>{0, 3, 1, 4, 2}));
  EXPECT_EQ(cheapest_tour({0}, 1).order, (std::vector<int>{0}));
  // Many cities on a circle, in two directions of different cost: all the way around.
  const int m = 40;
  std::vector<double> circle(m * m);
  for (int a = 0; a < m; ++a) {
    for (int b = 0; b < m; ++b) circle[static_cast<std::size_t>(a * m + b)] = (b - a + m) % m;
  }
  const auto [around, at_least, steps] = cheapest_tour(circle, m);
  EXPECT_GT(steps, m);
  EXPECT_EQ(at_least, m);  // not exact, and known to be the cheapest all the same
  for (int i = 0; i < m; ++i) EXPECT_EQ(around[static_cast<std::size_t>(i)], i);
}

TEST(Tours, OfFewCitiesAreExact) {
  std::mt19937 random(2);
  for (int n = 2; n <= 7; ++n) {
    for (int attempt = 0; attempt < 20; ++attempt) {
      std::vector<double> costs(static_cast<std::size_t>(n * n));
      for (double& c : costs) c = static_cast<double>(random() % 4);
      const auto length = [&](const std::vector<int>& t) {
        double sum = costs[static_cast<std::size_t>(t.back() * n + t.front())];
        for (std::size_t i = 1; i < t.size(); ++i) {
          sum += costs[static_cast<std::size_t>(t[i - 1] * n + t[i])];
        }
        return sum;
      };
      std::vector<int> order(static_cast<std::size_t>(n));
      std::iota(order.begin(), order.end(), 0);
      double least = length(order);
      while (std::next_permutation(order.begin() + 1, order.end())) {
        least = std::min(least, length(order));
      }
      auto [found, at_least, steps] = cheapest_tour(costs, n);
      EXPECT_EQ(length(found), least);
      EXPECT_EQ(at_least, least);
      EXPECT_GT(steps, 0);
      EXPECT_EQ(found.front(), 0);
      std::ranges::sort(found);
      EXPECT_EQ(found, order);  // sorted, too, as the last permutation was followed by the first
    }
  }
}

TEST(Tours, OfGroupsPassAGroupWhole) {
  std::mt19937 random(5);
  const std::vector<std::vector<int>> groups{{0, 3}, {1}, {2, 4, 5}, {6}};
  for (int attempt = 0; attempt < 50; ++attempt) {
    const int n = 7;
    std::vector<double> costs(n * n);
    for (double& c : costs) c = static_cast<double>(random() % 6);
    const CheapestTour found = cheapest_tour(costs, n, groups);
    ASSERT_EQ(found.order.size(), 7U);
    EXPECT_EQ(found.order[0], 0);
    double length = 0;
    for (std::size_t i = 0; i < 7; ++i) {
      const auto from = static_cast<std::size_t>(found.order[i]);
      length += costs[from * n + static_cast<std::size_t>(found.order[(i + 1) % 7])];
    }
    EXPECT_LE(found.at_least, length + 1e-9);
    for (const auto& group : groups) {
      const auto at = std::ranges::search(found.order, group);
      EXPECT_EQ(at.size(), group.size()) << "a group is torn apart";
    }
  }
  // One group alone: there is one way around it.
  const std::vector<double> three{0, 1, 9, 9, 0, 2, 4, 9, 0};
  const CheapestTour alone = cheapest_tour(three, 3, {{0, 1, 2}});
  EXPECT_EQ(alone.order, (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(alone.at_least, 7);
}

TEST(Tours, OfManyCitiesAreNoCheaperThanTheySay) {
  std::mt19937 random(3);
  for (const int n : {12, 13, 14}) {
    for (int attempt = 0; attempt < 10; ++attempt) {
      std::vector<double> costs(static_cast<std::size_t>(n * n));
      for (double& c : costs) c = static_cast<double>(random() % 10);
      const CheapestTour quick = cheapest_tour(costs, n), exact = cheapest_tour(costs, n, true);
      EXPECT_LE(quick.at_least, exact.at_least + 1e-9);
      EXPECT_GT(quick.at_least, 0);
      std::vector<int> visited = quick.order;
      std::ranges::sort(visited);
      for (int i = 0; i < n; ++i) EXPECT_EQ(visited[static_cast<std::size_t>(i)], i);
    }
  }
}

}  // namespace
}  // namespace tutti
