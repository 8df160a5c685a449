// Our nccl.h against the numbers; see abi.h.
#include "bindings/nccl/nccl.h"
#include "bindings/nccl/nccl_device.h"
//
#include "tests/bindings/nccl/abi.h"
