// Engines on the memory of a GPU, for which threads stand in (streamed_gpu.h): the same bits as on
// the host, all work in an order (checked_gpu.h), and mutants that leave a part of the order out.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "parallel/axis.h"
#include "parallel/pipeline/execute.h"
#include "parallel/pipeline/generate.h"
#include "parallel/tensor/linear.h"
#include "tests/parallel/checked_program.h"
#include "tests/support/contains.h"

namespace tutti::test {
namespace {

using namespace parallel;

/// Two dimensions at most: shards, and replicas of them.
struct Axes {
  Axes(Communicator& comm, int replicas, CheckedGpu* gpu)
      : shards(comm.split(comm.rank() / (comm.size() / replicas), comm.rank())),
        copies(comm.split(comm.rank() % (comm.size() / replicas), comm.rank())),
        shard(axis(shards, gpu)),
        replicate(axis(copies, gpu)) {}
  static std::unique_ptr<Axis> axis(Communicator& comm, CheckedGpu* gpu) {
    if (gpu != nullptr) return std::make_unique<CheckedAxis>(comm, *gpu);
    return std::make_unique<CommunicatorAxis>(comm);
  }
  ShardedAxes all() const {
    return {.shard = shard.get(), .replicate = copies.size() > 1 ? replicate.get() : nullptr};
  }
  Communicator shards, copies;
  std::unique_ptr<Axis> shard, replicate;
};

void expect_as_on_the_host(int ranks, const Body& body) {
  const std::vector<Result> host = on_ranks(ranks, false, body);
  EXPECT_GT(host[0].size(), 300u);
  EXPECT_EQ(on_ranks(ranks, true, body), host);
}

Body sharded(const TrainingOnDevice& training, int replicas = 1) {
  return [=](Communicator& comm, CheckedProgram* program) {
    HostProgram host;
    const Axes axes(comm, replicas, program != nullptr ? &program->gpu : nullptr);
    return train_sharded(program != nullptr ? static_cast<Program&>(*program) : host, axes.all(),
                         training);
  };
}

Body data_parallel(const DataParallelPolicy& policy) {
  return [=](Communicator& comm, CheckedProgram* program) {
    HostProgram host;
    const Axes axes(comm, 1, program != nullptr ? &program->gpu : nullptr);
    return train_data_parallel(program != nullptr ? static_cast<Program&>(*program) : host,
                               *axes.shard, policy, 3);
  };
}

TEST(GpuEngines, ShardedTrainsToTheHostsBits) {
  for (const Policy& policy : {Policy::zero1(), Policy::zero2(), Policy::zero3(), Policy::fsdp()}) {
    for (const int ranks : {1, 2}) {
      SCOPED_TRACE(policy.describe() + ", ranks: " + std::to_string(ranks));
      expect_as_on_the_host(ranks, sharded({.policy = policy, .optimizer = &kSgd}));
    }
  }
  expect_as_on_the_host(4, sharded({.policy = Policy::fsdp(), .optimizer = &kMomentum}));
}

TEST(GpuEngines, ShardedInOtherWays) {
  Policy kept = Policy::zero3();
  kept.reshard_after_forward = Reshard::no;
  kept.prefetch_forward = kept.prefetch_backward = 2;
  expect_as_on_the_host(2, sharded({.policy = kept, .optimizer = &kSgd}));
  // Narrow types, converted and added on the stream.
  Policy mixed = Policy::zero2(Precision::mixed());
  mixed.precision.reduce = DataType::float32;
  expect_as_on_the_host(
      2,
      sharded({.policy = mixed, .micro_batches = 2, .reduces_each = true, .optimizer = &kAdamW}));
  Policy divided = Policy::zero1();
  divided.divide_by = 4;
  expect_as_on_the_host(
      2,
      sharded({.policy = divided, .micro_batches = 2, .reduces_each = true, .optimizer = &kSgd}));
  expect_as_on_the_host(
      2, sharded({.policy = Policy::zero3(), .micro_batches = 3, .optimizer = &kSgd}));
}

TEST(GpuEngines, ReplicasReduceOnAStreamOfTheirOwn) {
  expect_as_on_the_host(4, sharded({.policy = Policy::zero3(), .optimizer = &kSgd}, 2));
}

TEST(GpuEngines, DataParallelAveragesToTheHostsBits) {
  for (const int ranks : {1, 2, 4}) expect_as_on_the_host(ranks, data_parallel(small_buckets()));
  DataParallelPolicy narrow = small_buckets();
  narrow.reduce_type = DataType::bfloat16;
  expect_as_on_the_host(2, data_parallel(narrow));
  DataParallelPolicy at_the_end = small_buckets();
  at_the_end.overlap = false;
  expect_as_on_the_host(2, data_parallel(at_the_end));
}

// A gather runs beside the units before its own, and not before its memory is free.
TEST(GpuEngines, GathersRunBesideKernels) {
  (void)on_ranks(2, true, [](Communicator& comm, CheckedProgram* program) {
    CheckedGpu& gpu = program->gpu;
    CheckedAxis axis(comm, gpu);
    std::vector<Unit> units;  // unit u has 64 (u + 1) elements
    for (std::size_t u = 0; u < 3; ++u) {
      units.push_back({.name = std::to_string(u), .parameters = {{"w", 64 * (u + 1), 64}}});
    }
    ShardedDataParallel model(units, Policy::zero3(), {.shard = &axis});
    model.share_parameters();
    const auto kernel = [&](const std::string& what, std::size_t u, void* writes) {
      const std::size_t bytes = 64 * (u + 1) * sizeof(float);
      gpu.launch(what + std::to_string(u), gpu.current(), {{model.parameter({u, 0}), bytes}},
                 {{writes, writes != nullptr ? bytes : 0}}, nullptr);
    };
    for (int step = 0; step < 3; ++step) {
      for (std::size_t u = 0; u < 3; ++u) {
        model.before_forward(u);
        kernel("forward ", u, nullptr);
        model.after_forward(u);
      }
      const auto gather = [](int u) { return "all_gather " + std::to_string(32 * (u + 1)); };
      EXPECT_TRUE(gpu.happened_before(gather(1), "forward 1"));
      if (step > 0) {
        EXPECT_FALSE(gpu.happened_before("forward 0", gather(1))) << "not ahead";
        EXPECT_FALSE(gpu.happened_before("forward 1", gather(2))) << "not ahead";
        EXPECT_TRUE(gpu.happened_before("forward 0", gather(2))) << "in its memory";
      }
      for (std::size_t u = 3; u-- > 0;) {
        model.before_backward(u);
        kernel("backward ", u, model.gradient({u, 0}));
        model.after_backward(u);
      }
      if (step > 0) {
        EXPECT_FALSE(gpu.happened_before("backward 1", gather(0))) << "not ahead";
        EXPECT_TRUE(gpu.happened_before("backward 1", "reduce_scatter 64"));
        EXPECT_FALSE(gpu.happened_before("reduce_scatter 64", "backward 0")) << "not beside it";
      }
      model.finish_backward();
      model.step(kSgd);
    }
    return Result();
  });
}

TEST(GpuEngines, BucketsRunBesideBackward) {
  (void)on_ranks(2, true, [](Communicator& comm, CheckedProgram* program) {
    CheckedGpu& gpu = program->gpu;
    CheckedAxis axis(comm, gpu);
    DataParallelPolicy policy = small_buckets();
    policy.learn_order = false;
    DataParallel engine(axis, {{"a", {200}}, {"b", {300}}}, policy);
    engine.zero();
    for (const std::size_t i : {1, 0}) {
      gpu.launch("gradient " + std::to_string(i), gpu.current(), {},
                 {{engine.gradient(i), (i == 0 ? 200 : 300) * sizeof(float)}}, nullptr);
      engine.ready(i);
    }
    (void)engine.finish();
    gpu.launch("step", gpu.current(), {{engine.gradient(1), 1200}}, {}, nullptr);
    EXPECT_TRUE(gpu.happened_before("gradient 1", "all_reduce 300"));
    EXPECT_FALSE(gpu.happened_before("gradient 0", "all_reduce 300"));
    EXPECT_FALSE(gpu.happened_before("all_reduce 300", "gradient 0"));
    EXPECT_TRUE(gpu.happened_before("all_reduce 300", "step"));
    EXPECT_TRUE(gpu.happened_before("all_reduce 200", "step"));
    return Result();
  });
}

// Each order of a step left out in turn, as an engine would that forgets it. No memory needs some
// of them: a wait that the next one contains, before anything reads what they are for; a gather
// whose block of the pool has long been free.
TEST(GpuEngineMutants, AForgottenOrderIsARace) {
  struct Mutated {
    const char* name;
    Body body;
    const char* needless;
  };
  TrainingOnDevice fsdp{.policy = Policy::zero3(), .steps = 2, .clips = false, .optimizer = &kSgd};
  TrainingOnDevice zero1 = fsdp;
  zero1.policy = Policy::zero1();
  for (const Mutated& m :
       {Mutated{"zero3", sharded(fsdp), " 16 19 26"},
        Mutated{"zero1", sharded(zero1), " 7 8 19 20"},
        Mutated{"data parallel", data_parallel(small_buckets()), " 1 2 3 4 5 9 10 15 16 21 22"}}) {
    int orders = 0;
    (void)on_ranks(1, true, m.body, -1, nullptr, &orders);
    EXPECT_GT(orders, 10) << m.name;
    std::string missed;
    for (int left_out = 0; left_out < orders; ++left_out) {
      std::vector<std::string> races;
      (void)on_ranks(1, true, m.body, left_out, &races);
      if (races.empty()) missed += " " + std::to_string(left_out);
    }
    EXPECT_EQ(missed, m.needless) << m.name << ", of " << orders;
  }
}

/// The races of an engine that does `body`, by one rank.
std::vector<std::string> races_of(
    const std::function<void(CheckedGpu&, Axis&, MemoryPool&)>& body) {
  std::vector<std::string> races;
  (void)on_ranks(
      1, true,
      [&](Communicator& comm, CheckedProgram* program) {
        CheckedAxis axis(comm, program->gpu);
        MemoryPool pool(MemoryPool::Reuse::yes, program->gpu);
        body(program->gpu, axis, pool);
        return Result();
      },
      -1, &races);
  return races;
}

TEST(GpuEngineMutants, FreeingEarlyIsARace) {
  constexpr std::size_t kBytes = 4000;
  const auto gather = [](Axis& axis, const Buffer& in, const Buffer& out) {
    return axis.all_gather(in.data(), out.data(), kBytes / 4, DataType::float32);
  };
  const auto engine = [&](bool waits) {
    return races_of([&](CheckedGpu&, Axis& axis, MemoryPool& pool) {
      const Buffer in = pool.zeros(kBytes);
      Buffer out = pool.allocate(kBytes);
      Pending pending = gather(axis, in, out);
      if (waits) pending.wait();
      out.reset();
      const Buffer next = pool.zeros(kBytes);  // the same memory
      pending.wait();
    });
  };
  EXPECT_EQ(engine(true), std::vector<std::string>{});
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the other engine has the race, and ThreadSanitizer finds it as well";
#endif
  EXPECT_EQ(engine(false), std::vector<std::string>{"all_gather 1000 / zeros"});
}

TEST(GpuEngines, FreedMemoryWaitsForItsUsersOnAnotherStream) {
  constexpr std::size_t kBytes = 4000;
  EXPECT_EQ(races_of([&](CheckedGpu& gpu, Axis&, MemoryPool& pool) {
              const std::shared_ptr<void> other = gpu.make_stream();
              const Device::Stream first = gpu.current();
              Buffer buffer = pool.zeros(kBytes);
              buffer.reset();
              gpu.use(other.get());
              buffer = pool.zeros(kBytes);
              buffer.reset();
              gpu.use(first);
              buffer = pool.zeros(2 * kBytes);  // gives the first one back to the GPU
            }),
            std::vector<std::string>{});
}

}  // namespace
}  // namespace tutti::test
