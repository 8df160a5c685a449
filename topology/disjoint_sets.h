// Disjoint sets of numbers, joined as it turns out that they belong together (union-find).
#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace tutti::topology {

class DisjointSets {
 public:
  /// Of 0 to n - 1, each in a set of its own.
  explicit DisjointSets(std::size_t n) : up_(n) {
    std::iota(up_.begin(), up_.end(), std::size_t{0});
  }
  /// The smallest number of the set that has `i`.
  std::size_t find(std::size_t i) {
    while (up_[i] != i) i = up_[i] = up_[up_[i]];
    return i;
  }
  void join(std::size_t a, std::size_t b) {
    a = find(a), b = find(b);
    up_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<std::size_t> up_;
};

}  // namespace tutti::topology
