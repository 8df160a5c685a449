// What lets one source be compiled for a CUDA device and for the host: everything in this folder
// that a kernel runs is also run by ordinary threads, in the tests (and under ThreadSanitizer).
#pragma once

#ifdef __CUDACC__
#define TUTTI_HD __host__ __device__ __forceinline__
#define TUTTI_COLD inline __host__ __device__ __noinline__
#else
#define TUTTI_HD inline
#define TUTTI_COLD inline
#endif

// The part that is really the device's: PTX instead of std::atomic, and warps.
#ifdef __CUDA_ARCH__
#define TUTTI_ON_DEVICE 1
#define TUTTI_UNROLL _Pragma("unroll")
#define TUTTI_NO_UNROLL _Pragma("unroll 1")
#else
#define TUTTI_ON_DEVICE 0
#define TUTTI_UNROLL
#define TUTTI_NO_UNROLL
#endif
