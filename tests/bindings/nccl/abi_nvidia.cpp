// NVIDIA's nccl.h, of whichever version is first on the search path, against the same numbers; see
// abi.h.
#include <nccl.h>
#include <nccl_device.h>
//
#include "tests/bindings/nccl/abi.h"
#ifndef CUDART_VERSION
#error "not the nccl.h of NVIDIA"
#endif
