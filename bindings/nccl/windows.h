// The windows of ncclCommWindowRegister(). Tutti does nothing for them yet. It remembers them, so
// that a program can ask about a handle.
#pragma once

#include "bindings/nccl/comm.h"

namespace tutti::nccl {

/// Ends the windows of a communicator that ends.
void forget_windows(const ncclComm& comm);

}  // namespace tutti::nccl
