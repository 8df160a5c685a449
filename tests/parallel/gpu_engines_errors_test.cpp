// What engines on GPUs refuse, and how they end. Part of gpu_engines_test.
#include <gtest/gtest.h>

#include <chrono>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "parallel/axis.h"
#include "parallel/domain/halo.h"
#include "parallel/expert/expert_parallel.h"
#include "parallel/hybrid/shared_gradients.h"
#include "parallel/pipeline/execute.h"
#include "parallel/pipeline/generate.h"
#include "parallel/sequence/attention.h"
#include "parallel/tensor/linear.h"
#include "parallel/tensor/vocabulary.h"
#include "tests/parallel/checked_program.h"
#include "tests/parallel/late_peer.h"
#include "tests/support/contains.h"

namespace tutti::test {
namespace {

using namespace parallel;

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
    refused(kUsage, "linear 'up': this axis is on GPU 0, which has no arithmetic of layers", [&] {
      tensor::ColumnParallelLinear(axis, {"up", 8, 8});
    });
    std::byte* const memory = bare.allocate(64);
    refused(kUsage, "send_recv of an engine inside of a group()", [&] {
      group([&] { (void)axis.recv(memory, 4, DataType::float32, 1 - axis.rank()); });
    });
    refused(kArgument, "the output is host memory", [&] {
      float here[16];
      (void)axis.all_gather(memory, here, 8, DataType::float32);
    });
    bare.release(memory, nullptr);
    return Result();
  });
}

/// `body` gets a model on a GPU without kernels, and what a micro-batch does to it.
template <class Body>
void on_bare_gpu(const Body& body) {
  (void)on_ranks(1, true, [&](Communicator& comm, CheckedProgram* program) {
    comm.impl().gpus = streamed_gpus();
    CommunicatorAxis axis(comm);
    Gpu bare(streamed_gpus(), 0);
    bare.use(program->gpu.current());
    axis.use(bare);
    ShardedDataParallel model({{.name = "u", .parameters = {{"w", 64, 8}}}}, Policy::zero3(),
                              {.shard = &axis});
    model.share_parameters();
    body(model, [&] {
      model.before_forward(0);
      model.after_forward(0);
      model.before_backward(0);
      model.after_backward(0);
    });
    return Result();
  });
}

TEST(GpuEngines, TheBareGpuNeedsTheProgramsKernels) {
  on_bare_gpu([](ShardedDataParallel&, const auto& micro_batch) {
    micro_batch();
    EXPECT_TRUE(
        contains(error_of(micro_batch).what(), "synchronise(false) for all micro-batches but"));
  });
  on_bare_gpu([](ShardedDataParallel& model, const auto& micro_batch) {
    micro_batch();
    model.finish_backward();
    EXPECT_TRUE(contains(error_of([&] { (void)model.clip_gradients(1); }).what(),
                         "a norm on GPU 0: there are no kernels for it here"));
    EXPECT_TRUE(
        contains(error_of([&] { model.step(kAdamW); }).what(), "AdamW has no kernels for GPUs"));
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

// One rank's GPU has what another's lacks: both are refused, as the former would wait for the
// latter.
TEST(GpuEngines, RanksHaveGpusOfTheSameAbilities) {
  (void)on_ranks(2, true, [](Communicator& comm, CheckedProgram* program) {
    CheckedAxis axis(comm, program->gpu);
    if (comm.rank() == 1) program->gpu.math = nullptr;
    const Error e = error_of([&] { tensor::RowParallelLinear(axis, {"down", 8, 8}); });
    EXPECT_EQ(e.code(), ErrorCode::mismatch);
    EXPECT_TRUE(contains(e.what(), "without arithmetic of layers")) << e.what();
    return Result();
  });
}

// A kernel would fault there.
TEST(GpuEngines, MemoryOfTheHostIsRefused) {
  (void)on_ranks(1, true, [](Communicator& comm, CheckedProgram* program) {
    CheckedAxis axis(comm, program->gpu);
    MemoryPool pool(MemoryPool::Reuse::no, program->gpu);
    const Buffer buffer = pool.zeros(4096);
    std::byte* const here = buffer.data();
    alignas(64) std::byte host[4096];
    const auto refused = [&](const std::string& text, const auto& body) {
      const Error e = error_of(body);
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
      EXPECT_TRUE(contains(e.what(), text + " is host memory, and the axis is on GPU 0"))
          << e.what();
    };
    tensor::ColumnParallelLinear up(axis, {"up", 8, 8});
    tensor::RowParallelLinear down(axis, {"down", 8, 8});
    refused("linear 'up': the input", [&] { up.forward(host, 4, {here, nullptr}, here); });
    refused("linear 'up': the place for the bias's gradient", [&] {
      up.backward(here, here, 4, {here, here}, here, {here, host});
    });
    refused("linear 'down': the output", [&] { down.forward(here, 4, {here, nullptr}, host); });
    refused("linear 'down': the weight", [&] {
      down.backward(here, here, 4, {host, here}, here, {here, here});
    });
    up.forward(host, 0, {here, nullptr}, here);  // which is not touched

    const std::vector<tensor::Token> tokens{1, 2};
    tensor::VocabularyEmbedding embedding(axis, "e", 8, 8, DataType::float32);
    tensor::VocabularyCrossEntropy loss(axis, "c", 8, DataType::float32);
    tensor::VocabularyCrossEntropy::Saved of_rows;
    refused("embedding 'e': the output", [&] { embedding.forward(tokens, here, host); });
    refused("cross entropy 'c': the logits", [&] { loss.forward(host, tokens, of_rows); });

    sequence::ContextParallelAttention attention(
        {.keys = &axis}, {.name = "a", .sequence = 8, .dim = 4}, sequence::plain_kernel());
    sequence::ContextParallelAttention::Saved saved;
    refused("attention 'a': k", [&] { attention.forward(here, host, here, here, saved); });

    expert::ExpertParallel experts(axis, {.name = "m", .experts = 2, .width = 4});
    expert::Saved journey;
    refused("experts 'm': y", [&] {
      experts.forward(here, {.top_k = 1, .experts = {0}, .weights = {1}}, {}, host, journey);
    });

    domain::Halo halo(axis, {.name = "h",
                             .dimensions = {{.name = "x", .cells = 8}},
                             .stencils = {{.kernel = 3, .padding = 1}}});
    refused("halo 'h': the padded block", [&] { halo.start(host); });
    refused("halo 'h': the block of own cells", [&] { halo.insert(host, here); });

    SharedGradients shared({.tensor = &axis}, {{"w", Copies::partial}});
    const SharedGradients::Run run{host, 8};
    refused("shared gradients: w", [&] { shared.reduce({&run, 1}); });
    return Result();
  });
}

// Rank 1 counts nothing, and is refused as well.
TEST(GpuEngines, TheNormOfSharedGradientsNeedsKernels) {
  (void)on_ranks(2, true, [](Communicator& comm, CheckedProgram* program) {
    comm.impl().gpus = streamed_gpus();
    CommunicatorAxis axis(comm);
    Gpu bare(streamed_gpus(), 0);
    bare.use(program->gpu.current());
    axis.use(bare);
    const SharedGradients shared({.tensor = &axis}, {{"w", Copies::equal}});
    MemoryPool pool(MemoryPool::Reuse::no, bare);
    const Buffer gradient = pool.zeros(64);
    const SharedGradients::Run run{gradient.data(), 16};
    Axis* const axes[] = {&axis};
    const Error e = error_of([&] { (void)shared.norm({&run, 1}, axes); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_usage);
    EXPECT_TRUE(contains(e.what(), "a norm on GPU 0: there are no kernels for it")) << e.what();
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

// The host waits for the gradients of the weights, and a kernel that gives up looks like one that
// is done.
TEST(GpuEngines, GradientsOfWeightsAreNotReadFromAFailedJourney) {
  using namespace std::chrono_literals;
  the_gpu = std::make_shared<StreamedGpu>();
  Options options;
  options.timeout = 3s;
  std::vector<Communicator> all = Communicator::create_local(2, options);
  std::binary_semaphore is_over(0);
  const auto run = [&](int rank, const auto& then) {
    CheckedProgram program;
    CheckedAxis axis(all[static_cast<std::size_t>(rank)], program.gpu);
    expert::ExpertParallel layer(axis, {.name = "m", .experts = 2, .width = 4});
    MemoryPool pool(MemoryPool::Reuse::no, program.gpu);
    const Buffer x = pool.zeros(32), y = pool.zeros(32);
    expert::Saved saved;
    layer.forward(
        x.data(), {.top_k = 1, .experts = {0, 1}, .weights = {1, 1}},
        [](std::size_t, const void*, std::size_t, void*) {}, y.data(), saved);
    then(layer, x.data(), saved, y.data());
  };
  {
    std::jthread late([&] {
      run(1,
          [&](expert::ExpertParallel&, const void*, expert::Saved&, void*) { is_over.acquire(); });
    });
    run(0, [&](expert::ExpertParallel& layer, const void* dy, expert::Saved& saved, void* dx) {
      std::vector<double> dweights(2);
      const Error e = error_of([&] {
        layer.backward(
            dy, [](std::size_t, const void*, const void*, std::size_t, void*) {}, saved, dx,
            dweights);
      });
      EXPECT_EQ(e.code(), ErrorCode::timed_out) << e.what();
      EXPECT_TRUE(contains(e.what(), "rank 0 has waited")) << e.what();
      is_over.release();
    });
  }
  all.clear();
  the_gpu.reset();
}

// A rank that does not come is an error of a later call, and nobody waits for ever.
TEST(GpuEngines, ALateRankIsATimeOutOfALaterCall) {
  const CallAlone reduce = [](CheckedAxis& axis, void* memory) {
    axis.all_reduce(memory, memory, 1000, DataType::float32).wait();
  };
  expect_time_out_of_a_later_call(4000, reduce, reduce);
}

}  // namespace
}  // namespace tutti::test
