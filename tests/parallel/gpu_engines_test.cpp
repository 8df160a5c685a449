// Engines on the memory of a GPU, for which threads stand in (streamed_gpu.h): the same bits as on
// the host, all work in an order (checked_gpu.h), and mutants that leave a part of the order out.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "parallel/axis.h"
#include "parallel/pipeline/execute.h"
#include "parallel/pipeline/generate.h"
#include "parallel/tensor/linear.h"
#include "tests/parallel/checked_gpu.h"
#include "tests/parallel/gpu_model.h"
#include "tests/support/contains.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using namespace parallel;

class CheckedProgram final : public Program {
 public:
  Device& device() override { return gpu; }
  void launch(const Kernel& k) override {
    const std::size_t bytes = k.count * size_of(k.to_type);
    std::vector<CheckedGpu::Range> reads{{k.b, k.count * size_of(k.type)}};
    if (k.a != nullptr) reads.push_back({k.a, k.count * sizeof(float)});
    gpu.launch(k.name, gpu.current(), reads, {{k.to, bytes}}, [k] { run(k); });
  }

  CheckedGpu gpu;
};

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

/// What each rank of the host's, and of the GPU's, ends with.
using Result = std::vector<float>;
using Body = std::function<Result(Communicator&, CheckedProgram*)>;

std::vector<Result> on_ranks(int ranks, bool gpu, const Body& body, int left_out = -1,
                             std::vector<std::string>* races = nullptr, int* orders = nullptr) {
  std::vector<Result> results(static_cast<std::size_t>(ranks));
  if (gpu) the_gpu = std::make_shared<StreamedGpu>();
  std::mutex mutex;
  Options options;
  options.timeout = 60s;
  run_thread_ranks(ranks, options, [&](Communicator& comm) {
    Result& result = results[static_cast<std::size_t>(comm.rank())];
    if (!gpu) {
      result = body(comm, nullptr);
      return;
    }
    CheckedProgram program;
    if (comm.rank() == 0) program.gpu.left_out = left_out;
    result = body(comm, &program);
    const std::lock_guard lock(mutex);
    if (races != nullptr) {
      races->insert(races->end(), program.gpu.races().begin(), program.gpu.races().end());
    } else {
      EXPECT_EQ(program.gpu.races(), std::vector<std::string>{}) << "rank " << comm.rank();
    }
    if (orders != nullptr && comm.rank() == 0) *orders = program.gpu.orders();
  });
  if (gpu) the_gpu.reset();
  return results;
}

void expect_as_on_the_host(int ranks, const Body& body) {
  const std::vector<Result> host = on_ranks(ranks, false, body);
  EXPECT_GT(host[0].size(), 300u);
  EXPECT_EQ(on_ranks(ranks, true, body), host);
}

const Sgd kSgd{{.learning_rate = 0.25}};
const Sgd kMomentum{{.learning_rate = 0.25, .momentum = 0.5}};
const AdamW kAdamW{{.learning_rate = 0.5}};

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

DataParallelPolicy small_buckets() {
  DataParallelPolicy policy;
  policy.bucket_bytes = policy.first_bucket_bytes = 800;
  return policy;
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

// What is refused, on all ranks, before anything travels.
TEST(GpuEngines, WhatIsRefused) {
  (void)on_ranks(2, true, [](Communicator& comm, CheckedProgram* program) {
    comm.impl().gpus = streamed_gpus();
    CommunicatorAxis axis(comm);
    Gpu bare(streamed_gpus(), 0);
    bare.use(program->gpu.current());
    axis.use(bare);
    const auto refused = [&](ErrorCode code, const std::string& text, const auto& body) {
      const Error e = error_of(body);
      EXPECT_EQ(e.code(), code) << e.what();
      EXPECT_TRUE(contains(e.what(), text)) << e.what();
    };
    const auto sharded_with = [&](const Policy& policy) {
      return [&axis, policy] {
        ShardedDataParallel(std::vector<Unit>{{.name = "u", .parameters = {{"w", 64, 8}}}}, policy,
                            {.shard = &axis});
      };
    };
    constexpr auto kArgument = ErrorCode::invalid_argument;
    refused(kArgument, "on GPU 0: it has no kernels for conversions",
            sharded_with(Policy::zero3(Precision::mixed())));
    Policy policy;
    policy.divide_by = 3;
    refused(kArgument, "it has no kernels for sums", sharded_with(policy));
    policy = {};
    policy.check_finite = true;
    refused(kArgument, "the norm of clip_gradients()", sharded_with(policy));
    policy = {};
    policy.gather_eight_bits = true;
    refused(kArgument, "gather_eight_bits is for host memory", sharded_with(policy));
    policy = {};
    policy.reduce_eight_bits = EightBits();
    refused(kArgument, "reduce_eight_bits is for host memory", sharded_with(policy));
    policy = {};
    policy.offload_state = true;
    refused(kArgument, "offload_state is for host memory", sharded_with(policy));

    const auto data_parallel_with = [&](const DataParallelPolicy& p) {
      return [&axis, p] { DataParallel(axis, {{"w", {64}}}, p); };
    };
    refused(kArgument, "power_sgd is for host memory, and these gradients are on GPU 0",
            data_parallel_with({.power_sgd = PowerSgd()}));
    refused(kArgument, "eight_bits is for host memory",
            data_parallel_with({.eight_bits = EightBits()}));
    refused(kArgument, "check_finite is for host memory",
            data_parallel_with({.check_finite = true}));
    refused(kArgument, "uneven_inputs is for host memory",
            data_parallel_with({.uneven_inputs = true}));
    refused(kArgument, "reduce_type bfloat16 needs conversions for which GPU 0",
            data_parallel_with({.reduce_type = DataType::bfloat16}));

    constexpr auto kUsage = ErrorCode::invalid_usage;
    refused(kUsage, "linear 'up': it works on the host's memory alone, and this axis is on GPU 0",
            [&] {
              tensor::ColumnParallelLinear(axis, {"up", 8, 8});
            });
    std::byte* const memory = bare.allocate(64);
    refused(kUsage, "a receive that is started early would hold up",
            [&] { (void)axis.recv(memory, 4, DataType::float32, 1 - axis.rank()); });
    refused(kArgument, "the output is host memory", [&] {
      float here[16];
      (void)axis.all_gather(memory, here, 8, DataType::float32);
    });
    bare.release(memory, nullptr);
    return Result();
  });
}

TEST(GpuEngines, TheBareGpuNeedsTheProgramsKernels) {
  (void)on_ranks(1, true, [](Communicator& comm, CheckedProgram* program) {
    comm.impl().gpus = streamed_gpus();
    CommunicatorAxis axis(comm);
    Gpu bare(streamed_gpus(), 0);
    bare.use(program->gpu.current());
    axis.use(bare);
    ShardedDataParallel model({{.name = "u", .parameters = {{"w", 64, 8}}}}, Policy::zero3(),
                              {.shard = &axis});
    model.share_parameters();
    const auto step = [&] {
      model.before_forward(0);
      model.after_forward(0);
      model.before_backward(0);
      model.after_backward(0);
    };
    step();
    EXPECT_TRUE(contains(error_of(step).what(), "synchronise(false) for all micro-batches but"));
    return Result();
  });
  (void)on_ranks(1, true, [](Communicator& comm, CheckedProgram* program) {
    comm.impl().gpus = streamed_gpus();
    CommunicatorAxis axis(comm);
    Gpu bare(streamed_gpus(), 0);
    bare.use(program->gpu.current());
    axis.use(bare);
    ShardedDataParallel model({{.name = "u", .parameters = {{"w", 64, 8}}}}, Policy::zero3(),
                              {.shard = &axis});
    model.share_parameters();
    model.before_forward(0);
    model.after_forward(0);
    model.before_backward(0);
    model.after_backward(0);
    model.finish_backward();
    EXPECT_TRUE(contains(error_of([&] { (void)model.clip_gradients(1); }).what(),
                         "a norm on GPU 0: there are no kernels for it here"));
    EXPECT_TRUE(
        contains(error_of([&] { model.step(kAdamW); }).what(), "AdamW has no kernels for GPUs"));
    return Result();
  });
}

TEST(GpuEngines, RanksAreAllOnGpusOrNone) {
  (void)on_ranks(2, true, [](Communicator& comm, CheckedProgram* program) {
    CheckedAxis axis(comm, program->gpu);
    if (comm.rank() == 1) axis.use(host_device());
    const Error e = error_of([&] { DataParallel(axis, {{"w", {64}}}); });
    EXPECT_EQ(e.code(), ErrorCode::mismatch);
    EXPECT_TRUE(contains(e.what(), "memory on the host")) << e.what();
    return Result();
  });
}

// The averages say nothing to the host; ranks ask each other.
TEST(GpuEngines, AMissingGradientIsNamedOnAllRanks) {
  (void)on_ranks(2, true, [](Communicator& comm, CheckedProgram* program) {
    CheckedAxis axis(comm, program->gpu);
    DataParallel engine(axis, {{"a", {200}}, {"b", {300}}}, small_buckets());
    engine.zero();
    engine.ready(0);
    if (comm.rank() == 0) engine.ready(1);
    const Error e = error_of([&] { (void)engine.finish(); });
    EXPECT_EQ(e.code(), ErrorCode::mismatch);
    EXPECT_TRUE(contains(e.what(), "b on rank 1")) << e.what();
    // The next step may be made.
    engine.zero();
    engine.ready(0);
    engine.ready(1);
    (void)engine.finish();
    return Result();
  });
}

// A rank that does not come is an error of a later call, and nobody waits for ever.
TEST(GpuEngines, ALateRankIsATimeOutOfALaterCall) {
  the_gpu = std::make_shared<StreamedGpu>();
  Options options;
  options.timeout = 300ms;
  std::vector<Communicator> all = Communicator::create_local(2, options);
  {
    CheckedGpu gpu;
    CheckedAxis axis(all[0], gpu);
    MemoryPool pool(MemoryPool::Reuse::no, gpu);
    const Buffer buffer = pool.zeros(4000);
    const auto reduce = [&] {
      axis.all_reduce(buffer.data(), buffer.data(), 1000, DataType::float32).wait();
    };
    reduce();
    gpu.synchronize(gpu.record(gpu.current()));
    const Error e = error_of(reduce);
    EXPECT_EQ(e.code(), ErrorCode::timed_out) << e.what();
    EXPECT_TRUE(contains(e.what(), "rank 0 has waited")) << e.what();
  }
  all.clear();
  the_gpu.reset();
}

}  // namespace
}  // namespace tutti::test
