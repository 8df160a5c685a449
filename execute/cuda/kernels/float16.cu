#include "execute/cuda/kernel.cuh"

TUTTI_KERNEL(float16)
