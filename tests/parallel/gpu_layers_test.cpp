// Layers that ranks share, on the memory of a GPU, for which threads stand in (checked_gpu.h): the
// host's bits, all work in an order, and mutants that leave a part of the order out. Part of
// gpu_engines_test.
#include "tests/parallel/gpu_layers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "parallel/axis.h"
#include "parallel/hybrid/shared_gradients.h"
#include "parallel/pipeline/generate.h"
#include "parallel/tensor/linear.h"
#include "parallel/tensor/vocabulary.h"
#include "tests/parallel/checked_program.h"
#include "tests/support/contains.h"

namespace tutti::test {
namespace {

using namespace parallel;

/// `pass` of a rank's program, on the host or on a GPU.
Body on_one_axis(const std::function<std::vector<float>(Program&, Axis&)>& pass) {
  return [=](Communicator& comm, CheckedProgram* program) {
    if (program == nullptr) {
      HostProgram host;
      CommunicatorAxis axis(comm);
      return pass(host, axis);
    }
    CheckedAxis axis(comm, program->gpu);
    return pass(*program, axis);
  };
}

void expect_layers_as_on_the_host(int ranks, const Body& body) {
  const std::vector<Result> host = on_ranks(ranks, false, body);
  EXPECT_GT(host[0].size(), 100u);
  EXPECT_EQ(on_ranks(ranks, true, body), host);
}

/// The orders of rank 0 that no memory needs: a first receive's, before which nothing has touched
/// its memory; a wait that a later one contains, before anything uses what it is for; those of what
/// sends, or gathers, what has long been there and stays.
std::string needless(int ranks, const Body& body) {
  int orders = 0;
  (void)on_ranks(ranks, true, body, -1, nullptr, &orders);
  EXPECT_GT(orders, 5);
  std::string missed;
  for (int left_out = 0; left_out < orders; ++left_out) {
    std::vector<std::string> races;
    (void)on_ranks(ranks, true, body, left_out, &races);
    if (races.empty()) missed += " " + std::to_string(left_out);
  }
  return missed + " of " + std::to_string(orders);
}

Body tensor_layers(const TensorWay& way) {
  return on_one_axis(
      [=](Program& program, Axis& axis) { return pass_tensor_layers(program, axis, way); });
}

TEST(GpuLayers, TensorParallelHasTheHostsBits) {
  for (const int ranks : {1, 2, 4}) {
    for (const bool sequence : {false, true}) {
      for (const std::size_t pieces : {1, 3}) {
        SCOPED_TRACE(fmt::format("{} ranks, sequence {}, pieces {}", ranks, sequence, pieces));
        expect_layers_as_on_the_host(
            ranks, tensor_layers({.sequence = sequence, .pieces = pieces, .adds = true}));
        expect_layers_as_on_the_host(ranks, tensor_layers({.sequence = sequence,
                                                           .pieces = pieces,
                                                           .keeps_gathered = sequence,
                                                           .whole_between = true}));
      }
    }
  }
}

TEST(GpuLayers, CrossEntropyHasTheHostsBits) {
  for (const int ranks : {1, 2, 4})
    expect_layers_as_on_the_host(ranks, on_one_axis(pass_cross_entropy));
}

// The sum of a piece travels while the next one is computed.
TEST(GpuLayers, PiecesTravelBesideProducts) {
  (void)on_ranks(2, true, [](Communicator& comm, CheckedProgram* program) {
    CheckedGpu& gpu = program->gpu;
    CheckedAxis axis(comm, gpu);
    MemoryPool pool(MemoryPool::Reuse::no, gpu);
    std::vector<std::string> made;
    const auto multiply = [&](const tensor::Product& p) {
      made.push_back(fmt::format("rows {}", made.size()));
      gpu.launch(made.back(), gpu.current(), {{p.a, p.rows * p.inner * 4}},
                 {{p.c, p.rows * p.columns * 4}}, nullptr);
    };
    tensor::RowParallelLinear down(axis, {"down", 16, 8}, {.pieces = 2}, multiply);
    const Buffer x = pool.zeros(5 * 8 * 4), w = pool.zeros(8 * 8 * 4), y = pool.zeros(5 * 8 * 4);
    down.forward(x.data(), 5, {w.data(), nullptr}, y.data());
    EXPECT_EQ(made.size(), 2u);
    EXPECT_TRUE(gpu.happened_before("rows 0", "all_reduce 16"));
    EXPECT_FALSE(gpu.happened_before("all_reduce 16", "rows 1")) << "not beside it";
    EXPECT_TRUE(gpu.happened_before("rows 1", "all_reduce 24"));
    gpu.launch("use", gpu.current(), {{y.data(), y.size()}}, {}, nullptr);
    EXPECT_TRUE(gpu.happened_before("all_reduce 24", "use"));
    return Result();
  });
}

TEST(GpuLayerMutants, AForgottenOrderIsARace) {
  EXPECT_EQ(needless(2, tensor_layers({.pieces = 2})), " 4 8 of 12");
  EXPECT_EQ(needless(2, tensor_layers({.sequence = true, .pieces = 2})), " 6 8 11 15 16 17 of 21");
}

/// The plain kernel, when its turn comes on the GPU's stream.
sequence::Kernel kernel_on(CheckedGpu& gpu) {
  using Ranges = std::vector<CheckedGpu::Range>;
  struct Sizes {
    explicit Sizes(const sequence::Block& b)
        : queries(b.queries * b.batch * b.heads * b.dim * size_of(b.type)),
          keys(b.keys * b.batch * b.kv_heads * b.dim * size_of(b.type)),
          sums(b.queries * b.batch * b.heads * size_of(sequence::wide(b.type))) {}
    std::size_t queries, keys, sums;
  };
  return {
      .forward =
          [&gpu](const sequence::ForwardBlock& f) {
            const Sizes s(f.block);
            const Ranges reads{{f.block.q, s.queries}, {f.block.k, s.keys}, {f.block.v, s.keys}};
            gpu.launch("attend", gpu.current(), reads, {{f.out, s.queries}, {f.lse, s.sums}},
                       [f] { sequence::plain_kernel().forward(f); });
          },
      .backward =
          [&gpu](const sequence::BackwardBlock& g) {
            const Sizes s(g.block);
            const Ranges reads{{g.block.q, s.queries}, {g.block.k, s.keys}, {g.block.v, s.keys},
                               {g.out, s.queries},     {g.lse, s.sums},     {g.dout, s.queries},
                               {g.delta, s.sums}};
            gpu.launch("attend back", gpu.current(), reads,
                       {{g.dq, s.queries}, {g.dk, s.keys}, {g.dv, s.keys}},
                       [g] { sequence::plain_kernel().backward(g); });
          }};
}

/// `heads`: ranks of the heads axis.
Body attention(int heads, const AttentionWay& way) {
  return [=](Communicator& comm, CheckedProgram* program) {
    Communicator of_heads = comm.split(comm.rank() / heads, comm.rank()),
                 of_keys = comm.split(comm.rank() % heads, comm.rank());
    if (program == nullptr) {
      HostProgram host;
      CommunicatorAxis heads_axis(of_heads), keys_axis(of_keys);
      return pass_attention(host, {&heads_axis, &keys_axis}, sequence::plain_kernel(), way);
    }
    CheckedAxis heads_axis(of_heads, program->gpu), keys_axis(of_keys, program->gpu);
    return pass_attention(*program, {&heads_axis, &keys_axis}, kernel_on(program->gpu), way);
  };
}

TEST(GpuLayers, RingAttentionHasTheHostsBits) {
  for (const auto order : {sequence::SequenceOrder::contiguous, sequence::SequenceOrder::zigzag}) {
    for (const DataType type : {DataType::float32, DataType::bfloat16}) {
      for (const int ranks : {1, 2, 4}) {
        SCOPED_TRACE(
            fmt::format("{} ranks, {}, order {}", ranks, name(type), static_cast<int>(order)));
        expect_layers_as_on_the_host(ranks, attention(1, {{.order = order}, type}));
      }
    }
  }
}

TEST(GpuLayers, GatheredKeysHaveTheHostsBits) {
  for (const auto order : {sequence::SequenceOrder::contiguous, sequence::SequenceOrder::zigzag}) {
    for (const DataType type : {DataType::float32, DataType::bfloat16}) {
      expect_layers_as_on_the_host(2,
                                   attention(1, {{sequence::KeysTravel::all_gather, order}, type}));
    }
  }
}

TEST(GpuLayers, HeadsHaveTheHostsBits) {
  for (const DataType type : {DataType::float32, DataType::bfloat16}) {
    for (const std::size_t kv_heads : {1, 2, 4}) {  // of one, ranks add up gradients
      expect_layers_as_on_the_host(2, attention(2, {.type = type, .kv_heads = kv_heads}));
      expect_layers_as_on_the_host(4, attention(2, {.type = type, .kv_heads = kv_heads}));
    }
    expect_layers_as_on_the_host(3, attention(3, {.type = type}));  // of other counts on each rank
  }
}

// The next keys come while the rank attends to those that it has.
TEST(GpuLayers, KeysTravelBesideTheAttention) {
  (void)on_ranks(2, true, [](Communicator& comm, CheckedProgram* program) {
    CheckedGpu& gpu = program->gpu;
    CheckedAxis axis(comm, gpu);
    int blocks = 0;
    sequence::Kernel kernel = kernel_on(gpu);
    kernel.forward = [&, inner = kernel.forward](const sequence::ForwardBlock& f) {
      inner(f);
      const bool is_own = blocks++ % 2 == 0;
      EXPECT_EQ(gpu.happened_before("recv 384", "attend"), !is_own);
      if (is_own) {
        EXPECT_FALSE(gpu.happened_before("attend", "recv 384"));
      }
    };
    (void)pass_attention(*program, {nullptr, &axis}, kernel,
                         {{.order = sequence::SequenceOrder::zigzag}});
    EXPECT_EQ(blocks, 4);
    return Result();
  });
}

TEST(GpuLayerMutants, AForgottenOrderOfAttentionIsARace) {
  EXPECT_EQ(
      needless(2, attention(1, {{.order = sequence::SequenceOrder::zigzag}, DataType::bfloat16})),
      " 0 2 4 5 6 7 9 11 12 13 14 16 20 22 23 25 26 28 29 31 33 35 36 37 38 40 44 46 of 48");
  EXPECT_EQ(needless(2, attention(2, {.kv_heads = 1})), " 3 4 11 12 17 18 25 26 of 28");
}

Body pipeline_of(const std::string& schedule, int micro_batches) {
  return on_one_axis([=](Program& program, Axis& axis) {
    return pass_pipeline(
        program, axis,
        pipeline::generate(*pipeline::find_generator(schedule), {axis.size(), micro_batches}));
  });
}

TEST(GpuLayers, PipelinesHaveTheHostsBits) {
  for (const char* const schedule : {"gpipe", "1f1b", "interleaved", "zb-h1"}) {
    for (const int ranks : {2, 4}) {
      SCOPED_TRACE(fmt::format("{}, {} ranks", schedule, ranks));
      expect_layers_as_on_the_host(ranks, pipeline_of(schedule, 8));
    }
  }
}

// Between two stages nothing travels, so one of their ranks has no memory at all.
TEST(GpuLayers, APipelineMayHaveABoundaryWithoutData) {
  for (const std::vector<std::size_t>& bytes : {std::vector<std::size_t>{0, 800}, {800, 0}}) {
    (void)on_ranks(3, true, [&](Communicator& comm, CheckedProgram* program) {
      CheckedAxis axis(comm, program->gpu);
      pipeline::Stages stages;
      stages.forward =
          stages.backward = [](int, int, pipeline::Stages::In, pipeline::Stages::Out) {};
      pipeline::Executor executor(
          axis, pipeline::generate(*pipeline::find_generator("1f1b"), {3, 4}), bytes, stages);
      for (int step = 0; step < 2; ++step) executor.step();
      return Result();
    });
  }
}

TEST(GpuLayerMutants, AForgottenOrderOfAPipelineIsARace) {
  EXPECT_EQ(needless(2, pipeline_of("1f1b", 3)), " 0 of 20");
}

domain::HaloShape halo_of(domain::Edge edge, bool corners, std::size_t inner) {
  return {.name = "h",
          .dimensions = {{.name = "y", .cells = 9, .ranks = 2, .edge = edge},
                         {.name = "x", .cells = 12, .ranks = 2, .edge = edge}},
          .stencils = {{.kernel = 3, .padding = 1}, {.kernel = 5, .padding = 2}},
          .outer = 2,
          .inner = inner,
          .corners = corners};
}

Body halo(const domain::HaloShape& shape) {
  return on_one_axis([=](Program& program, Axis& axis) { return pass_halo(program, axis, shape); });
}

TEST(GpuLayers, HalosHaveTheHostsBits) {
  for (const auto edge : {domain::Edge::zero, domain::Edge::periodic}) {
    for (const bool corners : {false, true}) {
      for (const std::size_t inner : {1, 3}) {
        SCOPED_TRACE(
            fmt::format("edge {}, corners {}, inner {}", static_cast<int>(edge), corners, inner));
        expect_layers_as_on_the_host(4, halo(halo_of(edge, corners, inner)));
      }
    }
  }
}

TEST(GpuLayerMutants, AForgottenOrderOfAHaloIsARace) {
  EXPECT_EQ(needless(4, halo(halo_of(domain::Edge::zero, true, 1))), " 0 4 of 32");
}

Body experts(const expert::ExpertOptions& options) {
  return on_one_axis(
      [=](Program& program, Axis& axis) { return pass_experts(program, axis, options); });
}

TEST(GpuLayers, ExpertsHaveTheHostsBits) {
  for (const int ranks : {1, 2, 4}) {
    for (const bool overlap : {false, true}) {
      expect_layers_as_on_the_host(ranks, experts({.overlap = overlap}));
    }
    expect_layers_as_on_the_host(ranks, experts({.capacity_factor = 0.7}));
  }
}

// Rank 1 has rows in the first wave and none in the second: behind its last row is no memory of the
// GPU.
TEST(GpuLayers, AWaveWithoutRowsIsTheGpusToo) {
  const Body body = on_one_axis([](Program& program, Axis& axis) {
    constexpr std::size_t kWidth = 64;
    expert::ExpertParallel layer(axis, {.name = "e", .experts = 4, .width = kWidth});
    const std::vector<std::int64_t> chosen =
        axis.rank() == 0 ? std::vector<std::int64_t>{0, 1, 2} : std::vector<std::int64_t>{0};
    const expert::Routing routing{
        .top_k = 1, .experts = chosen, .weights = std::vector<double>(chosen.size(), 0.5)};
    const std::size_t count = chosen.size() * kWidth;
    MemoryPool pool(MemoryPool::Reuse::no, program.device());
    const Buffer x = pool.zeros(count * sizeof(float)), y = pool.zeros(count * sizeof(float));
    std::vector<float> values(count, static_cast<float>(2 + axis.rank()));
    program.device().copy(x.data(), values.data(), count * sizeof(float));
    expert::Saved saved;
    layer.forward(
        x.data(), routing,
        [&](std::size_t, const void* rows, std::size_t got, void* results) {
          program.launch({.name = "expert", .b = rows, .to = results, .count = got * kWidth});
        },
        y.data(), saved);
    program.device().read(values.data(), y.data(), count * sizeof(float));
    return values;
  });
  EXPECT_EQ(on_ranks(2, true, body), on_ranks(2, false, body));
}

TEST(GpuLayerMutants, AForgottenOrderOfExpertsIsARace) {
  EXPECT_EQ(needless(4, experts({})), " 6 14 22 30 of 32");
}

TEST(GpuLayers, SharedGradientsHaveTheHostsBits) {
  for (const int ranks : {1, 2, 4}) {
    expect_layers_as_on_the_host(ranks, on_one_axis(pass_shared_gradients));
  }
}

// It has no axis with copies; the axes of the norm say where its gradients are.
TEST(GpuLayers, TheNormOfAStageBetweenTheEndsIsOfTheGpu) {
  (void)on_ranks(2, true, [](Communicator& comm, CheckedProgram* program) {
    CheckedGpu& gpu = program->gpu;
    CheckedAxis axis(comm, gpu);
    MemoryPool pool(MemoryPool::Reuse::no, gpu);
    const Buffer gradient = pool.zeros(100 * sizeof(float));
    gpu.launch("gradient", gpu.current(), {}, {{gradient.data(), gradient.size()}}, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      std::ranges::fill(std::span(reinterpret_cast<float*>(gradient.data()), 100), 1.0f);
    });
    const SharedGradients shared({}, {{"w"}});
    const SharedGradients::Run run{gradient.data(), 100};
    Axis* const axes[] = {&axis};
    EXPECT_EQ(shared.norm({&run, 1}, axes), std::sqrt(200.0));
    return Result();
  });
}

// The axis of the ends is where the pipeline's is.
TEST(GpuLayers, PipelineEndsAreOnThePipelinesDevice) {
  (void)on_ranks(2, true, [](Communicator& comm, CheckedProgram* program) {
    CommunicatorAxis axis(comm);
    axis.use(program->gpu);
    PipelineEnds ends(axis);
    EXPECT_EQ(&ends.axis()->device(), &program->gpu);
    return Result();
  });
}

// A GPU without arithmetic of layers has engines that only communicate.
TEST(GpuLayers, WhatIsRefused) {
  (void)on_ranks(2, true, [](Communicator& comm, CheckedProgram* program) {
    CheckedAxis axis(comm, program->gpu);
    program->gpu.math = nullptr;
    const auto refused = [&](const std::string& what, const auto& body) {
      const Error e = error_of(body);
      EXPECT_EQ(e.code(), ErrorCode::invalid_usage) << e.what();
      EXPECT_TRUE(contains(e.what(), what + ": this axis is on GPU 0, which has no arithmetic of"))
          << e.what();
    };
    refused("linear 'up'", [&] { tensor::ColumnParallelLinear(axis, {"up", 8, 8}); });
    refused("linear 'down'", [&] { tensor::RowParallelLinear(axis, {"down", 8, 8}); });
    refused("embedding 'e'",
            [&] { tensor::VocabularyEmbedding(axis, "e", 8, 8, DataType::float32); });
    refused("cross entropy 'c'",
            [&] { tensor::VocabularyCrossEntropy(axis, "c", 8, DataType::float32); });
    refused("attention 'a'", [&] {
      sequence::ContextParallelAttention({.keys = &axis}, {.name = "a", .sequence = 8, .dim = 4},
                                         sequence::plain_kernel());
    });
    refused("experts 'm'",
            [&] { expert::ExpertParallel(axis, {.name = "m", .experts = 2, .width = 4}); });
    domain::HaloShape bytes = halo_of(domain::Edge::zero, false, 1);
    bytes.dimensions[0].ranks = 1;
    bytes.type = DataType::uint8;
    const Error e = error_of([&] { domain::Halo(axis, bytes); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_TRUE(contains(e.what(), "GPU 0: it has no kernels for sums of them")) << e.what();
    return Result();
  });
}

}  // namespace
}  // namespace tutti::test
