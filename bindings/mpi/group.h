// Groups: ordered sets of processes of the job. A group never changes.
#pragma once

#include <memory>
#include <vector>

#include "bindings/mpi/handle.h"
#include "bindings/mpi/interface.h"

namespace tutti::mpi {

class Group {
 public:
  explicit Group(std::vector<int> members) : members_(std::move(members)) {}

  int size() const { return static_cast<int>(members_.size()); }
  /// The number in the job of the member with a rank.
  int at(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  /// The rank of a process of the job; MPI_UNDEFINED: it is no member.
  int rank_of(int process) const;
  const std::vector<int>& members() const { return members_; }

 private:
  std::vector<int> members_;
};

using GroupRef = std::shared_ptr<const Group>;

Handles<const Group, MPI_Group>& groups();
/// Throws Failure(MPI_ERR_GROUP) for the null handle and a freed one.
const Group& group_of(MPI_Group group);
GroupRef shared_group(MPI_Group group);
/// A handle for the group: MPI_GROUP_EMPTY for one without members.
MPI_Group new_group(std::vector<int> members);

}  // namespace tutti::mpi
