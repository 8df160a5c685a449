// The same work of ranks on the host and on the GPU of gpu_of_cpu_tensors.h, and whether it ends
// with the same tensors.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "comm/impl.h"
#include "parallel/axis.h"
#include "tests/bindings/torch/gpu_of_cpu_tensors.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {

/// What a rank ends with.
using Tensors = std::vector<at::Tensor>;
using WorkOfARank = std::function<Tensors(parallel::CommunicatorAxis&)>;

struct AsOnTheHost {
  double tolerance = 0;
  std::size_t more_than = 0;  // tensors of a rank
  bool launches = true;       // kernels of collectives
};

inline void expect_as_on_the_host(int ranks, const WorkOfARank& work, const AsOnTheHost& expected) {
  std::vector<Tensors> host(static_cast<std::size_t>(ranks)), gpu = host;
  run_thread_ranks(ranks, [&](Communicator& comm) {
    parallel::CommunicatorAxis axis(comm);
    host[static_cast<std::size_t>(comm.rank())] = work(axis);
  });
  the_gpu = std::make_shared<GpuAtOnce>();
  run_thread_ranks(ranks, [&](Communicator& comm) {
    comm.impl().gpus = gpus();
    GpuOfCpuTensors device;
    parallel::CommunicatorAxis axis(comm);
    axis.use(device);
    gpu[static_cast<std::size_t>(comm.rank())] = work(axis);
    if (expected.launches) {
      EXPECT_GT(the_gpu->launches, 0);
    }
  });
  the_gpu.reset();
  for (std::size_t r = 0; r < host.size(); ++r) {
    ASSERT_GT(host[r].size(), expected.more_than);
    ASSERT_EQ(host[r].size(), gpu[r].size());
    for (std::size_t i = 0; i < host[r].size(); ++i) {
      EXPECT_TRUE(at::allclose(host[r][i], gpu[r][i], expected.tolerance, expected.tolerance))
          << "rank " << r << ", tensor " << i << "\n"
          << host[r][i] << "\n"
          << gpu[r][i];
    }
  }
}

}  // namespace tutti::test
