#include "bindings/mpi/group.h"

#include <algorithm>
#include <set>

#include "bindings/mpi/error.h"
#include "bindings/mpi/procedures.h"

namespace tutti::mpi {
namespace {

void check_ranks(const Group& group, int n, const int ranks[], bool distinct) {
  if (n < 0) fail(MPI_ERR_ARG, "the number of ranks is {}, but has to be 0 or more", n);
  std::set<int> seen;
  for (int i = 0; i < n; ++i) {
    if (ranks[i] < 0 || ranks[i] >= group.size()) {
      fail(MPI_ERR_RANK, "rank {} is not in the group: its ranks are 0 to {}", ranks[i],
           group.size() - 1);
    }
    if (distinct && !seen.insert(ranks[i]).second) {
      fail(MPI_ERR_RANK, "rank {} stands in the list twice", ranks[i]);
    }
  }
}

/// The ranks of first, first + stride, ... last.
std::vector<int> ranks_of_ranges(int n, int ranges[][3]) {
  if (n < 0) fail(MPI_ERR_ARG, "the number of ranges is {}, but has to be 0 or more", n);
  std::vector<int> ranks;
  for (int i = 0; i < n; ++i) {
    const long first = ranges[i][0];
    const long last = ranges[i][1];
    const long stride = ranges[i][2];
    if (stride == 0) fail(MPI_ERR_ARG, "range {} has stride 0", i);
    for (long r = first; stride > 0 ? r <= last : r >= last; r += stride) {
      ranks.push_back(static_cast<int>(r));
    }
  }
  return ranks;
}

MPI_Group included(const Group& group, const std::vector<int>& ranks) {
  std::vector<int> members;
  for (const int r : ranks) members.push_back(group.at(r));
  return new_group(std::move(members));
}

MPI_Group excluded(const Group& group, const std::vector<int>& ranks) {
  const std::set<int> out(ranks.begin(), ranks.end());
  std::vector<int> members;
  for (int r = 0; r < group.size(); ++r) {
    if (!out.contains(r)) members.push_back(group.at(r));
  }
  return new_group(std::move(members));
}

bool has(const Group& group, int process) { return group.rank_of(process) != MPI_UNDEFINED; }

}  // namespace

int Group::rank_of(int process) const {
  // Most groups are whole, or their members are few.
  if (process >= 0 && process < size() && at(process) == process) return process;
  const auto found = std::ranges::find(members_, process);
  return found == members_.end() ? MPI_UNDEFINED : static_cast<int>(found - members_.begin());
}

Handles<const Group, MPI_Group>& groups() {
  static auto* all = [] {
    auto* made = new Handles<const Group, MPI_Group>;
    made->predefine(MPI_GROUP_EMPTY, std::make_shared<const Group>(std::vector<int>{}));
    return made;
  }();
  return *all;
}

GroupRef shared_group(MPI_Group group) {
  GroupRef found = groups().share(group);
  if (!found) fail(MPI_ERR_GROUP, "the group is MPI_GROUP_NULL, or has been freed");
  return found;
}

const Group& group_of(MPI_Group group) {
  const Group* const found = groups().find(group);
  if (found == nullptr) fail(MPI_ERR_GROUP, "the group is MPI_GROUP_NULL, or has been freed");
  return *found;
}

MPI_Group new_group(std::vector<int> members) {
  if (members.empty()) return MPI_GROUP_EMPTY;
  return groups().add(std::make_shared<const Group>(std::move(members)));
}

int MPI_Group_size(MPI_Group group, int* size) {
  return guarded("MPI_Group_size", {}, [&] { *size = group_of(group).size(); });
}

int MPI_Group_translate_ranks(MPI_Group group1, int n, const int ranks1[], MPI_Group group2,
                              int ranks2[]) {
  return guarded("MPI_Group_translate_ranks", {}, [&] {
    const Group& from = group_of(group1);
    const Group& to = group_of(group2);
    if (n < 0) fail(MPI_ERR_ARG, "the number of ranks is {}, but has to be 0 or more", n);
    for (int i = 0; i < n; ++i) {
      if (ranks1[i] == MPI_PROC_NULL) {
        ranks2[i] = MPI_PROC_NULL;
        continue;
      }
      check_ranks(from, 1, ranks1 + i, false);
      ranks2[i] = to.rank_of(from.at(ranks1[i]));
    }
  });
}

int MPI_Group_compare(MPI_Group group1, MPI_Group group2, int* result) {
  return guarded("MPI_Group_compare", {}, [&] {
    const Group& a = group_of(group1);
    const Group& b = group_of(group2);
    if (a.members() == b.members()) {
      *result = MPI_IDENT;
      return;
    }
    *result = std::is_permutation(a.members().begin(), a.members().end(), b.members().begin(),
                                  b.members().end())
                  ? MPI_SIMILAR
                  : MPI_UNEQUAL;
  });
}

int MPI_Group_union(MPI_Group group1, MPI_Group group2, MPI_Group* newgroup) {
  return guarded("MPI_Group_union", {}, [&] {
    const Group& a = group_of(group1);
    std::vector<int> members = a.members();
    for (const int p : group_of(group2).members()) {
      if (!has(a, p)) members.push_back(p);
    }
    *newgroup = new_group(std::move(members));
  });
}

int MPI_Group_intersection(MPI_Group group1, MPI_Group group2, MPI_Group* newgroup) {
  return guarded("MPI_Group_intersection", {}, [&] {
    const Group& b = group_of(group2);
    std::vector<int> members;
    for (const int p : group_of(group1).members()) {
      if (has(b, p)) members.push_back(p);
    }
    *newgroup = new_group(std::move(members));
  });
}

int MPI_Group_difference(MPI_Group group1, MPI_Group group2, MPI_Group* newgroup) {
  return guarded("MPI_Group_difference", {}, [&] {
    const Group& b = group_of(group2);
    std::vector<int> members;
    for (const int p : group_of(group1).members()) {
      if (!has(b, p)) members.push_back(p);
    }
    *newgroup = new_group(std::move(members));
  });
}

int MPI_Group_incl(MPI_Group group, int n, const int ranks[], MPI_Group* newgroup) {
  return guarded("MPI_Group_incl", {}, [&] {
    const Group& g = group_of(group);
    check_ranks(g, n, ranks, true);
    *newgroup = included(g, {ranks, ranks + n});
  });
}

int MPI_Group_excl(MPI_Group group, int n, const int ranks[], MPI_Group* newgroup) {
  return guarded("MPI_Group_excl", {}, [&] {
    const Group& g = group_of(group);
    check_ranks(g, n, ranks, true);
    *newgroup = excluded(g, {ranks, ranks + n});
  });
}

int MPI_Group_range_incl(MPI_Group group, int n, int ranges[][3], MPI_Group* newgroup) {
  return guarded("MPI_Group_range_incl", {}, [&] {
    const Group& g = group_of(group);
    const std::vector<int> ranks = ranks_of_ranges(n, ranges);
    check_ranks(g, static_cast<int>(ranks.size()), ranks.data(), true);
    *newgroup = included(g, ranks);
  });
}

int MPI_Group_range_excl(MPI_Group group, int n, int ranges[][3], MPI_Group* newgroup) {
  return guarded("MPI_Group_range_excl", {}, [&] {
    const Group& g = group_of(group);
    const std::vector<int> ranks = ranks_of_ranges(n, ranges);
    check_ranks(g, static_cast<int>(ranks.size()), ranks.data(), true);
    *newgroup = excluded(g, ranks);
  });
}

int MPI_Group_free(MPI_Group* group) {
  return guarded("MPI_Group_free", {}, [&] {
    group_of(*group);
    if (!groups().is_predefined(*group)) groups().remove(*group);
    *group = MPI_GROUP_NULL;
  });
}

}  // namespace tutti::mpi
