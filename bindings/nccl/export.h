// The definition of a function of the NCCL interface: pncclX is the function, ncclX a weak name for
// it, as in NVIDIA's library. So a profiler may define ncclX itself and call pncclX, and Tutti's
// own calls never leave the library.
#pragma once

#define NCCL_API(result, name, parameters)                                  \
  extern "C" __attribute__((visibility("default"), weak, alias("p" #name))) \
  result name parameters;                                                   \
  extern "C" __attribute__((visibility("default"))) result p##name parameters
