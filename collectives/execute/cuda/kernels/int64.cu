#include "collectives/execute/cuda/kernel.cuh"

TUTTI_KERNEL(int64)
