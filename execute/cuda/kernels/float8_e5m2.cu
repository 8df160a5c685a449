#include "execute/cuda/kernel.cuh"

TUTTI_KERNEL(float8_e5m2)
