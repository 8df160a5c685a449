// DataParallel and FullyShard on a TorchGpu, for which threads stand in (gpu_of_cpu_tensors.h): the
// results are those of the host.
#include "bindings/torch/torch_gpu.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bindings/torch/data_parallel.h"
#include "bindings/torch/fully_shard.h"
#include "bindings/torch/linear.h"
#include "comm/impl.h"
#include "tests/bindings/torch/as_on_the_host.h"
#include "tests/bindings/torch/gpu_of_cpu_tensors.h"
#include "tests/bindings/torch/whole_numbers.h"
#include "tests/support/thread_ranks.h"

namespace tutti::libtorch {
namespace {

using parallel::AdamW;
using parallel::CommunicatorAxis;
using parallel::Optimizer;
using parallel::Policy;
using parallel::Precision;
using parallel::Sgd;
using test::error_of;
using test::GpuAtOnce;
using test::GpuOfCpuTensors;
using test::gpus;
using test::run_thread_ranks;
using test::the_gpu;
using test::whole_numbers;

struct Net : torch::nn::Module {
  Net() : first(std::make_shared<Linear>(4, 6)), last(std::make_shared<Linear>(6, 4)) {
    const at::NoGradGuard no_grad;
    register_module("first", first);
    register_module("last", last);
    first->weight.copy_(whole_numbers({6, 4}, 1));
    first->bias.copy_(whole_numbers({6}, 2));
    last->weight.copy_(whole_numbers({4, 6}, 3));
    last->bias.copy_(whole_numbers({4}, 4));
    // Torch makes this one's gradient, which is copied.
    scale = register_parameter("scale", at::ones({4}));
    count = register_buffer("count", at::zeros({1}));
  }
  std::shared_ptr<Linear> first, last;
  Tensor scale, count;
};

using Result = test::Tensors;
using Body = test::WorkOfARank;

/// What each rank ends with, on the host and on the GPU; torch's updates round in other places.
void expect_as_on_the_host(int ranks, const Body& body, double tolerance = 0) {
  test::expect_as_on_the_host(ranks, body,
                              {.tolerance = tolerance, .more_than = 4, .launches = true});
}

Tensor input(int rank, int step) { return whole_numbers({3, 4}, 5 * rank + step); }

TEST(TorchGpus, DataParallelGivesTheHostsGradients) {
  for (const int ranks : {1, 2}) {
    expect_as_on_the_host(ranks, [](CommunicatorAxis& axis) {
      Net net;
      parallel::DataParallelPolicy policy;
      policy.bucket_bytes = policy.first_bucket_bytes = 100;
      DataParallel ddp(axis, net, policy);
      Result results;
      for (int step = 0; step < 3; ++step) {
        const Tensor h = net.first->forward(input(axis.rank(), step));
        ddp.backward((net.last->forward(h) * net.scale).sum());
        const at::NoGradGuard no_grad;
        for (Tensor& p : net.parameters()) {
          results.push_back(p.grad().clone());
          p.sub_(p.grad() * 0.25);
          p.mutable_grad().reset();
        }
      }
      return results;
    });
  }
}

Body sharded(const Policy& policy, const Optimizer& optimizer) {
  return [&](CommunicatorAxis& axis) {
    Net net;
    FullyShard shards({.shard = &axis}, net, {{"first", net.first.get()}, {"rest", &net}}, policy);
    const at::ScalarType type = scalar_type(policy.precision.compute);
    Result results;
    for (int step = 0; step < 3; ++step) {
      const Tensor h = shards.forward(
          0, [&](const Tensor& x) { return net.first->forward(x); },
          input(axis.rank(), step).to(type));
      const Tensor y = shards.forward(
          1, [&](const Tensor& x) { return net.last->forward(x) * net.scale; }, h);
      shards.backward(y.sum());
      results.push_back(at::full({}, shards.engine().clip_gradients(4)));
      shards.engine().step(optimizer);
    }
    shards.restore();
    for (const Tensor& p : net.parameters()) results.push_back(p.detach().clone());
    return results;
  };
}

TEST(TorchGpus, FullyShardTrainsAsOnTheHost) {
  // Torch's sums round by where a tensor lies: a few last bits of a float; of a bfloat16, one.
  constexpr double kClose = 1e-5, kCloseIfMixed = 1.0 / 256;
  const Sgd sgd{{.learning_rate = 0.25}};
  const Sgd nesterov{
      {.learning_rate = 0.25, .momentum = 0.5, .weight_decay = 0.125, .nesterov = true}};
  // With a tiny epsilon, a last bit of a gradient that is almost zero would change a whole step.
  const AdamW adamw{{.learning_rate = 0.125, .epsilon = 0.5}};
  for (const Policy& policy : {Policy::zero1(), Policy::zero2(), Policy::fsdp()}) {
    expect_as_on_the_host(2, sharded(policy, sgd), kClose);
  }
  expect_as_on_the_host(1, sharded(Policy::zero3(), nesterov), kClose);
  expect_as_on_the_host(2, sharded(Policy::zero3(), adamw), kClose);
  expect_as_on_the_host(2, sharded(Policy::fsdp(Precision::mixed()), adamw), kCloseIfMixed);
}

TEST(TorchGpus, SumsAndConversionsHaveTheHostsBits) {
  the_gpu = std::make_shared<GpuAtOnce>();
  {
    GpuOfCpuTensors gpu;
    parallel::Device& host = parallel::host_device();
    const Tensor a = at::rand({100}) * 8 - 4, b = at::rand({100});
    Tensor on_host = at::empty({100}), on_gpu = at::empty({100});
    for (const unsigned divisor : {0u, 3u}) {
      for (const Tensor& before : {Tensor(), b, on_host}) {
        const auto* const also = before.defined() ? before.const_data_ptr() : nullptr;
        gpu.add(DataType::float32, on_gpu.mutable_data_ptr(), a.const_data_ptr(), divisor, also,
                100);
        host.add(DataType::float32, on_host.mutable_data_ptr(), a.const_data_ptr(), divisor, also,
                 100);
        EXPECT_TRUE(at::equal(on_host, on_gpu)) << divisor;
      }
    }
    Tensor narrow_host = at::empty({100}, at::kBFloat16), narrow_gpu = narrow_host.clone();
    gpu.convert(DataType::float32, a.const_data_ptr(), DataType::bfloat16,
                narrow_gpu.mutable_data_ptr(), 100);
    host.convert(DataType::float32, a.const_data_ptr(), DataType::bfloat16,
                 narrow_host.mutable_data_ptr(), 100);
    EXPECT_TRUE(at::equal(narrow_host, narrow_gpu));
    const parallel::Device::Values both[] = {{a.const_data_ptr(), 100}, {b.const_data_ptr(), 50}};
    EXPECT_NEAR(gpu.sum_of_squares(DataType::float32, both),
                host.sum_of_squares(DataType::float32, both), 1e-9);
  }
  the_gpu.reset();
}

TEST(TorchGpus, WhatIsRefused) {
  the_gpu = std::make_shared<GpuAtOnce>();
  run_thread_ranks(2, [&](Communicator& comm) {
    comm.impl().gpus = gpus();
    parallel::Gpu bare(gpus(), 0);
    CommunicatorAxis axis(comm);
    axis.use(bare);
    Net net;
    const Error e = error_of([&] { DataParallel(axis, net); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(e.what()).find("modules need a TorchGpu"), std::string::npos) << e.what();
    // There is no CUDA in this PyTorch, or no parameter on it.
    TorchGpu cuda(gpus(), 0, c10::Device(c10::kCUDA, 0));
    axis.use(cuda);
    const Error other = error_of([&] { FullyShard({.shard = &axis}, {{"net", &net}}); });
    EXPECT_EQ(other.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(other.what()).find("it is on the CPU, not cuda:0"), std::string::npos)
        << other.what();
  });
  the_gpu.reset();
}

}  // namespace
}  // namespace tutti::libtorch
