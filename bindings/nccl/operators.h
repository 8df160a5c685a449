// Data types and reduction operators: NCCL's numbers, checked, as Tutti's; and the operators that
// users make.
#pragma once

#include "bindings/nccl/execute.h"
#include "bindings/nccl/nccl.h"

namespace tutti::nccl {

/// Throws Error(invalid_argument) for an unknown number.
DataType data_type(ncclDataType_t type);
/// Sets the operator of a task whose communicator and type are set. A copy: the user may destroy
/// the operator before the task runs.
void set_operator(Task& task, ncclRedOp_t op);

}  // namespace tutti::nccl
