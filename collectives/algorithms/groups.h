// Ranks in groups of neighbours, from the view of one rank.
#pragma once

#include <vector>

#include "collectives/algorithms.h"

namespace tutti::algorithm {

struct Groups {
  int ranks;  // in all
  int root;
  int size;                 // ranks of the first group; where groups are equal, of each
  int mine;                 // the group of the rank at hand
  int index;                // its index there
  std::vector<int> begins;  // the first rank of each group, and `ranks`

  /// Throws Error(invalid_argument) unless the request makes sense.
  Groups(const PlanRequest& request, int rank);

  int count() const { return static_cast<int>(begins.size()) - 1; }
  int begin(int group) const { return begins[static_cast<std::size_t>(group)]; }
  int size_of(int group) const { return begin(group + 1) - begin(group); }
  int largest() const;
  int group_of(int rank) const;
  bool are_equal() const;
  /// Throws Error(invalid_argument) unless each group is a subtree of the canonical expression (2^k
  /// ranks; the last group may have fewer), or there is one group.
  void need_subtrees() const;
  /// Throws Error(invalid_argument) unless they are.
  void need_equal(Collective c) const;
  /// A group of one rank has nothing to do inside, unless it is the only group.
  bool work_inside() const { return size_of(mine) > 1 || count() == 1; }
  /// The rank that speaks for a group: its first, or the root.
  int leader(int group) const { return group == group_of(root) ? root : begin(group); }
  int leader_index() const { return leader(mine) - begin(mine); }
  bool lead() const { return leader_index() == index; }

  std::vector<int> inside() const;      // the ranks of this group
  std::vector<int> same_index() const;  // one of each group, where groups are equal
  std::vector<int> leaders() const;
};

}  // namespace tutti::algorithm
