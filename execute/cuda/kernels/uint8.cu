#include "execute/cuda/kernel.cuh"

TUTTI_KERNEL(uint8)
