// Ranks in groups.
#include "collectives/algorithms/groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>

#include "collectives/algorithms/common.h"
#include "core/error.h"

namespace tutti::algorithm {

Groups::Groups(const PlanRequest& request, int rank)
    : ranks(request.ranks),
      root(is_rooted(request.collective) ? request.root : 0),
      size(request.group) {
  make_header(request.collective, "hierarchical", request, rank, {});  // checks ranks and root
  if (size < 0 || size > ranks) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("groups of {} ranks, of {} in all; ask for 1 to {}, or 0 to leave it open",
                    size, ranks, ranks));
  }
  if (size == 0 && request.in_order) {
    while (size < 1 || size * 2 <= ranks / (size * 2)) size = std::max(size * 2, 1);
  } else if (size == 0) {  // of the divisors around the square root, the one below is the nearer
    for (int d = 1; d <= ranks / d; ++d) {
      if (ranks % d == 0) size = d;
    }
  }
  if (request.groups.empty()) {
    for (int first = 0; first < ranks; first += size) begins.push_back(first);
    begins.push_back(ranks);
  } else {
    begins.push_back(0);
    for (const int n : request.groups) begins.push_back(begins.back() + std::max(n, 0));
    if (begins.back() != ranks || std::ranges::min(request.groups) < 1) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("groups of {} ranks, of {} in all; each must have one or more, and all "
                      "together those that there are",
                      fmt::join(request.groups, ", "), ranks));
    }
    size = size_of(0);
  }
  mine = group_of(rank);
  index = rank - begin(mine);
}

int Groups::group_of(int rank) const {
  const auto after = std::ranges::upper_bound(begins, rank);
  return static_cast<int>(after - begins.begin()) - 1;
}

int Groups::largest() const {
  int most = 0;
  for (int k = 0; k < count(); ++k) most = std::max(most, size_of(k));
  return most;
}

bool Groups::are_equal() const {
  for (int k = 1; k < count(); ++k) {
    if (size_of(k) != size) return false;
  }
  return true;
}

void Groups::need_equal(Collective c) const {
  if (are_equal()) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("hierarchical {} needs groups of equal size, and {} does not divide {}; "
                          "ask for a divisor, or 0 to leave it open",
                          name(c), size, ranks));
}

void Groups::need_subtrees() const {
  bool are = count() == 1 || (std::has_single_bit(u32(size)) && size_of(count() - 1) <= size);
  for (int k = 1; k + 1 < count(); ++k) are = are && size_of(k) == size;
  if (are) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("sums of groups are parts of the canonical expression of {} ranks where "
                          "each group has as many, a power of two, and the last as many or fewer; "
                          "but these begin at ranks {}",
                          ranks, fmt::join(std::span(begins).first(u32(count())), ", ")));
}

std::vector<int> Groups::inside() const {
  std::vector<int> all(u32(size_of(mine)));
  std::iota(all.begin(), all.end(), begin(mine));
  return all;
}

std::vector<int> Groups::same_index() const {
  std::vector<int> all;
  for (int r = index; r < ranks; r += size) all.push_back(r);
  return all;
}

std::vector<int> Groups::leaders() const {
  std::vector<int> all;
  for (int k = 0; k < count(); ++k) all.push_back(leader(k));
  return all;
}

}  // namespace tutti::algorithm
