// The GPU tests' main(): without a device they say so in one line and are skipped (exit status 77).
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "transport/gpu/cuda_module.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  std::string why;
  if (tutti::gpu_count(&why) == 0) {
    std::printf("no CUDA device: %s\n", why.c_str());
    return 77;
  }
  return RUN_ALL_TESTS();
}
