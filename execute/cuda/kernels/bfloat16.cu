#include "execute/cuda/kernel.cuh"

TUTTI_KERNEL(bfloat16)
