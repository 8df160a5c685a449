// Ranks in groups of neighbours, as one of them sees it.
#pragma once

#include <vector>

#include "collectives/algorithms.h"

namespace tutti::algorithm {

struct Groups {
  int ranks;  // in all
  int root;
  int size;   // ranks per group; the last group may have fewer
  int mine;   // the group of the rank at hand
  int index;  // its index there

  /// Throws Error(invalid_argument) unless the request makes sense.
  Groups(const PlanRequest& request, int rank);

  int count() const { return (ranks + size - 1) / size; }
  int size_of(int group) const;
  bool are_equal() const { return ranks % size == 0; }
  /// Throws Error(invalid_argument) unless they are.
  void need_equal(Collective c) const;
  /// A group of one has nothing to do inside, unless it is all there is.
  bool work_inside() const { return size_of(mine) > 1 || count() == 1; }
  /// The rank that speaks for a group: its first, or the root.
  int leader(int group) const { return group == root / size ? root : group * size; }
  int leader_index() const { return leader(mine) - mine * size; }
  bool lead() const { return leader_index() == index; }

  std::vector<int> inside() const;      // the ranks of this group
  std::vector<int> same_index() const;  // one of each group, where groups are equal
  std::vector<int> leaders() const;
};

}  // namespace tutti::algorithm
