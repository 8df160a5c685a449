// The windows of ncclCommWindowRegister(). Nothing is done for them yet; they are remembered, so
// that what a handle stands for can be asked.
#pragma once

#include "bindings/nccl/comm.h"

namespace tutti::nccl {

/// Ends the windows of a communicator that ends.
void forget_windows(const ncclComm& comm);

}  // namespace tutti::nccl
