// From a user's Call to a Binding: the arguments checked, the buffers as tables of blocks, the
// plan.
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "comm/plans.h"
#include "comm/session.h"
#include "execute/host/operation.h"

namespace tutti {

/// The tables of a v-variant; a Binding refers to them while it runs.
struct Tables {
  std::vector<std::size_t> in_counts, in_offsets, out_counts, out_offsets;
};

/// Bytes of a call's buffers on rank `rank`; `largest`: of the largest buffer of any rank (0 if
/// only the two ends of a transfer know it). Throws Error(invalid_argument) for sizes that no
/// memory can hold.
struct BufferSizes {
  std::size_t in = 0, out = 0, largest = 0;
};
BufferSizes buffer_sizes(const Call& call, int rank, int ranks);
/// Whether this collective moves nothing, and every rank knows that.
bool moves_nothing(const Call& call, const BufferSizes& sizes);

/// Throws Error(invalid_argument) with a sentence if rank `rank` of `ranks` cannot make this call.
void check_call(const Call& call, int rank, int ranks);
/// The part of check_call() that looks at addresses, for a call of these sizes that is right
/// otherwise.
void check_addresses(const Call& call, const BufferSizes& sizes, int rank, int ranks);

/// A checked call with the plan that runs it, on whichever memory; `tables` owns the numbers that
/// its tables of blocks point to.
void bind_to_plan(BoundCall& bound, const Call& call, int rank, const Geometry& geometry,
                  const ReadyPlan& plan, Tables& tables);
/// Elements of the largest block.
std::size_t largest_block(const BoundCall& bound);

/// What all ranks must agree on, except for the number of the operation.
Signature signature_of(const Call& call);

/// The binding of a checked call to `plan`. The caller fills in signature and tag. `tables` owns
/// the numbers that the binding points to.
Binding bind_call(const Call& call, RankGroup& group, const Geometry& geometry,
                  const ReadyPlan& plan, Tables& tables);

}  // namespace tutti
