// From a user's Call to a Binding: the arguments checked, the buffers as tables of blocks, the
// plan.
#pragma once

#include <vector>

#include "collectives/execute/host/operation.h"
#include "comm/communicator.h"
#include "comm/plans.h"
#include "comm/session.h"

namespace tutti {

/// The tables of a v-variant; a Binding refers to them while it runs.
struct Tables {
  std::vector<std::size_t> in_counts, in_offsets, out_counts, out_offsets;
};

/// Throws Error(invalid_argument) with a sentence if rank `rank` of `ranks` cannot make this call.
void check_call(const Call& call, int rank, int ranks);

/// The binding of a call that was checked. Its `signature.sequence` is left to the caller, who also
/// sets `tag`. `tables` keeps what the binding points to.
Binding bind_call(const Call& call, int rank, const Geometry& geometry, int ranks, Plans& plans,
                  Tables& tables);

}  // namespace tutti
