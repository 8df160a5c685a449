#include "execute/cuda/kernel.cuh"

TUTTI_KERNEL(float8_e4m3)
