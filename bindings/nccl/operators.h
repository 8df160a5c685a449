// Data types and reduction operators: NCCL's numbers, checked, as Tutti's; and the operators that
// users make.
#pragma once

#include "bindings/nccl/comm.h"
#include "bindings/nccl/nccl.h"

namespace tutti::nccl {

/// Throws Error(invalid_argument) for an unknown number.
DataType data_type(ncclDataType_t type);
/// Sets the operator of a call that has its type already. A copy: the user may destroy the operator
/// before the call runs. Returns where its scalar is, if that is to be read when it runs; else
/// null.
const void* set_operator(ncclComm& comm, Call& call, ncclRedOp_t op);

}  // namespace tutti::nccl
