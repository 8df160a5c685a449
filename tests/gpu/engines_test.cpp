// Engines of parallel training on the memory of a GPU, through the CUDA runtime: ranks as threads,
// each with a stream of its own. They end at the bits of the same steps on the host.
//
// Two programs have this file: gpu_test on a GPU, and cuda_engines_test over a CUDA runtime of
// threads (engines_gpu.h says how they differ).
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "comm/impl.h"
#include "core/error.h"
#include "parallel/gpu.h"
#include "parallel/memory_pool.h"
#include "parallel/reshard/reshard.h"
#include "tests/gpu/engines_gpu.h"
#include "tests/parallel/gpu_model.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

using namespace parallel;

class CudaProgram final : public Program {
 public:
  CudaProgram() : gpu_(gpus_of_the_test(), 0), stream_(gpu_.make_stream()) {
    gpu_.use(stream_.get());
  }
  Gpu& device() override { return gpu_; }
  void launch(const Kernel& k) override {
    launch_elementwise({.a = static_cast<const float*>(k.a),
                        .b = static_cast<const float*>(k.b),
                        .scale = k.scale,
                        .to = static_cast<float*>(k.to),
                        .adds = k.adds,
                        .count = k.count},
                       gpu_.current());
  }

 private:
  Gpu gpu_;
  const std::shared_ptr<void> stream_;
};

/// Plain gradient descent, with a kernel for GPUs.
class Descent final : public Optimizer {
 public:
  std::string_view name() const override { return "descent"; }
  std::size_t states() const override { return 0; }
  void update_on_gpu(const Slice& slice, void* stream) const override {
    launch_elementwise({.a = nullptr,
                        .b = static_cast<const float*>(slice.gradient),
                        .scale = -kRate,
                        .to = static_cast<float*>(slice.master),
                        .adds = true,
                        .count = slice.count},
                       stream);
  }

 private:
  static constexpr float kRate = 0.25;
  void update_block(const Slice&, const kernels::Block& block) const override {
    auto* const master = static_cast<float*>(block.master);
    const auto* const gradient = static_cast<const float*>(block.gradient);
    for (std::size_t i = 0; i < block.count; ++i) master[i] += -kRate * gradient[i];
  }
};
const Descent kDescent;

using Result = std::vector<float>;
using Body = Result (*)(Program&, Axis&, std::size_t which);

std::vector<Result> on_ranks(int ranks, bool on_gpu, Body body, std::size_t which) {
  std::vector<Result> results(static_cast<std::size_t>(ranks));
  Options options;
  options.timeout = std::chrono::seconds(20);
  run_thread_ranks(ranks, options, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    Result& result = results[static_cast<std::size_t>(comm.rank())];
    if (!on_gpu) {
      HostProgram host;
      result = body(host, axis, which);
      return;
    }
    comm.impl().gpus = gpus_of_the_test();
    CudaProgram program;
    axis.use(program.device());
    result = body(program, axis, which);
  });
  return results;
}

class GpuTraining : public ::testing::TestWithParam<int> {
 protected:
  static void expect_as_on_the_host(Body body, std::size_t which) {
    const std::vector<Result> host = on_ranks(GetParam(), false, body, which);
    const std::vector<Result> gpu = on_ranks(GetParam(), true, body, which);
    EXPECT_GT(host[0].size(), 300u);
    EXPECT_EQ(gpu, host);
  }
};

TEST_P(GpuTraining, Sharded) {
  for (std::size_t which = 0; which < 4; ++which) {
    expect_as_on_the_host(
        [](Program& program, Axis& axis, std::size_t i) {
          const Policy policies[] = {Policy::zero1(), Policy::zero2(), Policy::zero3(),
                                     Policy::fsdp()};
          return train_sharded(program, {.shard = &axis},
                               {.policy = policies[i],
                                .micro_batches = i == 2 ? 2 : 1,
                                .clips = false,
                                .optimizer = &kDescent});
        },
        which);
  }
}

TEST_P(GpuTraining, DataParallel) {
  expect_as_on_the_host(
      [](Program& program, Axis& axis, std::size_t) {
        DataParallelPolicy policy;
        policy.bucket_bytes = policy.first_bucket_bytes = 800;
        return train_data_parallel(program, axis, policy, 3);
      },
      0);
}

TEST_P(GpuTraining, Messages) {
  if (GetParam() == 1) return;  // it has nobody to send to
  expect_as_on_the_host(
      [](Program& program, Axis& axis, std::size_t) { return pass_messages(program, axis); }, 0);
}

/// Rows of all ranks become columns, of the last rank first. Some messages, of several boxes.
Result columns_of_rows(Program& program, Axis& axis) {
  constexpr std::uint64_t kRows = 96, kColumns = 48;
  std::vector<int> all, reversed;
  for (int r = 0; r < axis.size(); ++r) {
    all.push_back(r);
    reversed.insert(reversed.begin(), r);
  }
  reshard::Layout from(axis.size()), to(axis.size());
  for (const char* const name : {"a", "b"}) {
    const reshard::Tensor tensor{name, DataType::float32, {kRows, kColumns}};
    add_sharded(from, tensor, {{axis.size()}, {reshard::shard(0)}, all});
    add_sharded(to, tensor, {{axis.size()}, {reshard::shard(1)}, reversed});
  }
  Device& device = program.device();
  MemoryPool pool(MemoryPool::Reuse::no, device);
  std::vector<Buffer> memory;
  std::vector<const void*> sources;
  std::vector<void*> targets;
  Result values(kRows * kColumns / static_cast<std::size_t>(axis.size()));
  const std::size_t bytes = values.size() * sizeof(float);
  for (int t = 0; t < 2; ++t) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(i + values.size() * static_cast<std::size_t>(axis.rank())) +
                  1e5f * static_cast<float>(t);
    }
    sources.push_back(memory.emplace_back(pool.zeros(bytes)).data());
    device.copy(memory.back().data(), values.data(), bytes);
    targets.push_back(memory.emplace_back(pool.zeros(bytes)).data());
  }
  reshard::Reshard weights(axis, from, to, {.host_message_bytes = 4096});
  weights.run(sources, targets);
  Result result;
  for (void* const target : targets) {
    device.read(values.data(), target, bytes);
    result.insert(result.end(), values.begin(), values.end());
  }
  return result;
}

TEST_P(GpuTraining, Reshard) {
  expect_as_on_the_host(
      [](Program& program, Axis& axis, std::size_t) { return columns_of_rows(program, axis); }, 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, GpuTraining, ::testing::Values(1, 2, 4));

}  // namespace
}  // namespace tutti::test
