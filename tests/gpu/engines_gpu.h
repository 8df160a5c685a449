// What differs between a GPU and a CUDA runtime of threads, for engines_test.cpp.
#pragma once

#include <cstddef>

#include "device/gpus.h"

namespace tutti::test {

Gpus gpus_of_the_test();

/// to[i] = (adds ? to[i] : 0) + (a[i] + scale b[i]), after what is on the stream; null: zeros.
struct Elementwise {
  const float* a = nullptr;
  const float* b = nullptr;
  float scale = 1;
  float* to = nullptr;
  bool adds = false;
  std::size_t count = 0;
};
void launch_elementwise(const Elementwise& kernel, void* stream);

}  // namespace tutti::test
