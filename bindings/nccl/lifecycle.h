// What the functions share that make communicators from others.
#pragma once

#include <functional>
#include <string_view>

#include "bindings/nccl/group.h"

namespace tutti::nccl {

/// ncclCommInitRankConfig, for `function`.
ncclResult_t init_rank(std::string_view function, ncclComm_t* out, int size, const ncclUniqueId& id,
                       int rank, const ncclConfig_t* given);

/// A communicator of the same ranks where `comm` was stopped or has failed, if they all live; else
/// an empty one. Collective.
Communicator renewed_if_stopped(ncclComm& comm, const Options& options);

/// Makes a handle for a child of `parent` (if this rank is a member) and submits `open`.
ncclResult_t open_child(std::string_view function, ncclComm& parent, ncclComm_t* out, bool member,
                        int rank, int size, const Config& config,
                        std::function<Communicator()> open);

}  // namespace tutti::nccl
