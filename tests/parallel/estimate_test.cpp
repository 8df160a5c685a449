// The estimator says what the engines do: bytes and calls exactly, memory to the byte where it is
// the engines', for mixes that are trained here; and what is known of published models.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "hybrid_model.h"
#include "parallel/estimate/recommend.h"
#include "parallel/sharded/sharded.h"
#include "tests/parallel/traffic_text.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

using namespace parallel;
using namespace parallel::estimate;

// --- Models --------------------------------------------------------------------------------------

TEST(EstimatedModel, PublishedSizesHaveTheirPublishedParameters) {
  struct Published {
    const char* name;
    double parameters;
  };
  for (const Published& p :
       {Published{"1B", 1.236e9}, Published{"3B", 3.213e9}, Published{"7B", 6.738e9},
        Published{"8B", 8.030e9}, Published{"13B", 13.016e9}, Published{"70B", 70.554e9},
        Published{"175B", 174.6e9}, Published{"405B", 405.85e9}, Published{"8x7B", 46.70e9},
        Published{"8x22B", 140.63e9}}) {
    const Model model = transformer(*transformer_of(p.name));
    EXPECT_NEAR(static_cast<double>(model.parameters()) / p.parameters, 1, 1e-3) << p.name;
  }
}

TEST(EstimatedModel, AnotherSizeGetsTheSameProportions) {
  for (const double billions : {0.5, 34.0, 1000.0}) {
    const auto sizes = transformer_of(fmt::format("{}B", billions));
    ASSERT_TRUE(sizes.has_value());
    EXPECT_NE(sizes->name.find("no published model"), std::string::npos);
    const auto parameters = static_cast<double>(transformer(*sizes).parameters());
    EXPECT_NEAR(parameters / (billions * 1e9), 1, 0.15) << billions;
  }
  for (const char* text : {"", "B", "7", "7X", "-7B", "nanB", "infB", "0B", "1e9B"}) {
    EXPECT_FALSE(transformer_of(text).has_value()) << text;
  }
}

TEST(EstimatedModel, WhatIsMissingOrDoesNotDivideIsNamed) {
  TransformerSizes s = *transformer_of("7B");
  s.vocab_size = 0;
  EXPECT_NE(std::string(error_of([&] { transformer(s); }).what()).find("vocab_size"),
            std::string::npos);
  s = *transformer_of("7B");
  s.num_key_value_heads = 5;
  EXPECT_NE(std::string(error_of([&] { transformer(s); }).what()).find("num_key_value_heads 5"),
            std::string::npos);
  const Model model = transformer(*transformer_of("8B"));
  const auto refused = [&](const Mix& mix) {
    const Error e = error_of([&] { check(mix, model); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    return std::string(e.what());
  };
  EXPECT_EQ(refused({.tensor = 16}),
            "16 tensor-parallel ranks do not divide the 8 key and value heads of 8B");
  EXPECT_EQ(refused({.pipeline = 33}), "33 stages of a pipeline are more than the 32 blocks of 8B");
  EXPECT_EQ(refused({.tensor = 8, .sequence = true, .length = 1001}),
            "8 tensor-parallel ranks do not divide the 1001 tokens of a micro-batch of 8B");
  EXPECT_EQ(refused({.stage = 4}), "there is no ZeRO stage 4");
  EXPECT_EQ(refused({.shards = 6, .context = 4}),
            "4 ranks that share a sequence do not divide the 6 data-parallel ranks");
  EXPECT_EQ(refused({.shards = 4, .experts = 2}), "2 ranks do not divide the 0 experts of 8B");
  EXPECT_EQ(refused({.shards = 64, .context = 64, .heads = 64}),
            "32 heads are too few for 64 ranks that exchange rows for heads");
  EXPECT_EQ(refused({.shards = 4, .context = 4, .length = 1002}),
            "4 ranks that share a sequence do not divide its 1002 tokens into two chunks for each");
}

// --- Memory --------------------------------------------------------------------------------------

// Rajbhandari et al., ZeRO, 2020: 7.5 billion parameters on 64 ranks take 120, 31.4, 16.6, 1.9 GB.
TEST(EstimatedMemory, IsThatOfTheZeroPaper) {
  const Unit unit{.name = "all", .parameters = {{"w", 7'500'000'000, 7'500'000'000}}};
  const double expected[] = {120, 31.4, 16.6, 1.9};
  for (int stage = 0; stage <= 3; ++stage) {
    const MemoryByKind m = engine_memory({.shards = 64, .stage = stage}, {{unit, 1, 1}});
    EXPECT_NEAR(m.state() / 1e9, expected[stage], 0.05) << stage;
  }
}

TEST(EstimatedMemory, IsWhatTheShardedEngineHolds) {
  // An embedding, six blocks, an output: none of them divides evenly.
  std::vector<estimate::HeldUnit> held;
  held.push_back({{.name = "embedding", .parameters = {{"embedding", 97 * 24, 97}}}, 1, 1});
  held.push_back({{.name = "block",
                   .parameters = {{"norm", 24, 24}, {"up", 100 * 24, 100}, {"down", 24 * 100, 24}}},
                  6,
                  1});
  held.push_back({{.name = "output", .parameters = {{"norm", 24, 24}}}, 1, 1});
  std::vector<Unit> units;
  for (const auto& h : held) units.insert(units.end(), h.times, h.unit);
  for (const int ranks : {2, 3, 4}) {
    for (const int stage : {1, 2, 3}) {
      for (const Layout layout : {Layout::flat, Layout::by_parameter}) {
        for (const Precision& precision : {Precision{}, Precision::mixed()}) {
          const Mix mix{.shards = ranks, .stage = stage, .layout = layout, .precision = precision};
          const MemoryByKind m = engine_memory(mix, held);
          run_thread_ranks(ranks, [&](Communicator& world) {
            CommunicatorAxis axis(world);
            ShardedDataParallel model(units, mix.policy(), {.shard = &axis});
            model.share_parameters();
            for (int step = 0; step < 3; ++step) {
              for (std::size_t u = 0; u < units.size(); ++u) {
                model.before_forward(u);
                model.after_forward(u);
              }
              for (std::size_t u = units.size(); u-- > 0;) {
                model.before_backward(u);
                model.after_backward(u);
              }
              model.finish_backward();
              model.step(AdamW());
            }
            const std::string what = fmt::format("{} ranks, {}", ranks, mix.policy().describe());
            EXPECT_EQ(m.state(), static_cast<double>(model.statistics().total.bytes)) << what;
            EXPECT_NEAR((m.state() + m.in_use) / static_cast<double>(model.statistics().total.peak),
                        1, 0.03)
                << what;
          });
        }
      }
    }
  }
}

TEST(EstimatedMemory, OfActivationsIsDividedByTensorParallelismAndSequences) {
  const Model model = transformer(*transformer_of("7B"));
  Mix mix{.tensor = 8, .length = 1000};
  const double whole = 4 * 4096, divided = 4 * 4096 + 3 * 11008;
  EXPECT_EQ(memory(mix, model, 0).activations,
            32 * 1000 * (2 * (whole + divided / 8) + 4 * 32.0 / 8));
  mix.sequence = true;
  EXPECT_EQ(memory(mix, model, 0).activations,
            32 * 1000 * (2 * (whole + divided) / 8 + 4 * 32.0 / 8));
  mix.recompute = true;
  EXPECT_EQ(memory(mix, model, 0).activations,
            1000 * (32 * 2 * 4096 / 8.0 + 2 * (whole + divided) / 8 + 4 * 32.0 / 8));
  // A pipeline's first stage has as many micro-batches as there are stages, the last has one.
  mix = {.pipeline = 4, .length = 1000, .micro_batches = 16};
  EXPECT_EQ(memory(mix, model, 0).activations, 4 * memory(mix, model, 3).activations);
}

// --- Traffic -------------------------------------------------------------------------------------

/// hybrid_model.h as the estimator knows it.
Model hybrid_model() {
  using Size = HybridSizes;
  Model m{.name = "hybrid",
          .width = Size::width,
          .vocabulary = Size::tokens,
          .blocks = Size::blocks,
          .tied = true};
  m.embedding = {.name = "embedding",
                 .parameters = {{"embedding", Size::tokens, Size::width, Divided::rows}}};
  m.block = {.name = "block",
             .parameters = {{"gain", Size::width},
                            {"shift", Size::width},
                            {"w1", Size::hidden, Size::width, Divided::rows},
                            {"b1", Size::hidden, 1, Divided::rows},
                            {"w2", Size::width, Size::hidden, Divided::columns},
                            {"b2", Size::width}},
             .pairs = 1};
  m.output = {.name = "norm", .parameters = {{"gain", Size::width}, {"shift", Size::width}}};
  return m;
}

TEST(EstimatedTraffic, IsWhatTrainingCarries) {
  const TrainedAlone alone = train_alone(3);
  const Model model = hybrid_model();
  struct Case {
    int dp, tp, pp, micro_batches, zero;
    bool sequence;
    Layout layout = Layout::flat;
    const char* schedule = "1f1b";
  };
  for (const Case& k :
       {Case{8, 1, 1, 1, 1, false}, Case{8, 1, 1, 1, 3, false}, Case{1, 8, 1, 2, 0, false},
        Case{1, 4, 2, 4, 0, true}, Case{4, 2, 1, 2, 1, true}, Case{4, 2, 1, 2, 2, false},
        Case{2, 2, 2, 4, 3, true}, Case{2, 2, 2, 4, 3, true, Layout::by_parameter},
        Case{2, 2, 2, 2, 1, false, Layout::flat, "gpipe"}, Case{2, 1, 4, 4, 3, false},
        Case{1, 2, 4, 8, 0, true}, Case{4, 1, 2, 2, 2, false, Layout::by_parameter}}) {
    HybridCase c{.dp = k.dp, .tp = k.tp, .pp = k.pp, .micro_batches = k.micro_batches};
    c.sequence = k.sequence;
    c.schedule = k.schedule;
    c.zero = k.zero;
    c.layout = k.layout;
    c.steps = 3;
    Mix mix{.shards = k.dp,
            .tensor = k.tp,
            .pipeline = k.pp,
            .stage = k.zero,
            .sequence = k.sequence,
            .layout = k.layout,
            .precision = Precision::of(DataType::float64)};
    mix.length = HybridSizes::length;
    mix.micro_batches = static_cast<std::size_t>(k.micro_batches);
    mix.sequences =
        HybridSizes::rows / mix.length / static_cast<std::size_t>(k.dp) / mix.micro_batches;
    run_thread_ranks(8, [&](Communicator& world) {
      const TrainedHybrid got = train_hybrid(world, c, alone);
      const int stage = world.rank() / (k.dp * k.tp), shard = world.rank() / k.tp % k.dp;
      const StepTraffic expected = traffic(mix, model, stage, shard);
      const std::string what = fmt::format("{}, rank {}", c.text(), world.rank());
      if (k.dp > 1) {
        EXPECT_EQ(text_of(got.data), text_of(expected.data)) << what;
      }
      if (k.tp > 1) {
        EXPECT_EQ(text_of(got.tensor), text_of(expected.tensor)) << what;
      }
      if (k.pp > 1) {
        EXPECT_EQ(text_of(got.pipeline), text_of(expected.pipeline)) << what;
        EXPECT_EQ(text_of(got.ends), text_of(expected.ends)) << what;
      }
    });
  }
}

// --- Walls, and what to use ----------------------------------------------------------------------

/// H100s of 80 GB in hosts of eight: 200 GB/s of data inside, 40 of each GPU to other hosts.
estimate::Cluster h100(int gpus) {
  return {.gpus = gpus,
          .gpus_of_a_host = std::min(gpus, 8),
          .memory = 80e9,
          .flops = 400e12,
          .cost = [](Collective, const AxisPlace& at) {
            return at.hosts == 1 ? CallCost{20, 200} : CallCost{60, 40};
          }};
}

TEST(EstimatedWall, IsTheKnownOne) {
  const auto wall = [](const char* size, const Mix& mix) {
    return estimate::estimate(mix, transformer(*transformer_of(size)), h100(mix.ranks())).wall;
  };
  // 16 bytes of each parameter: 108 GB of a 7B.
  EXPECT_EQ(wall("7B", {}), Wall::state);
  EXPECT_EQ(wall("7B", {.shards = 8, .stage = 0}), Wall::state);
  EXPECT_EQ(wall("7B", {.shards = 8, .stage = 3, .sequences = 16}), Wall::activations);
  EXPECT_NE(wall("7B", {.shards = 8, .stage = 3, .recompute = true}), Wall::state);
  EXPECT_EQ(wall("70B", {.shards = 8, .stage = 3}), Wall::state);  // 141 GB of each
  EXPECT_EQ(wall("405B", {.shards = 64, .stage = 3}), Wall::state);
  // Few tokens for each gather of FSDP between hosts.
  EXPECT_EQ(wall("7B", {.shards = 64, .stage = 3, .length = 512}), Wall::bandwidth);
  // As many stages as micro-batches.
  EXPECT_EQ(wall("7B", {.pipeline = 8, .recompute = true, .micro_batches = 8}), Wall::bubble);
  // One block that is larger than a GPU: 24 blocks of 42e9 parameters.
  TransformerSizes huge{.name = "huge",
                        .hidden_size = 65536,
                        .num_hidden_layers = 24,
                        .num_attention_heads = 512,
                        .intermediate_size = 131072,
                        .vocab_size = 32000};
  EXPECT_EQ(
      estimate::estimate({.shards = 1024, .stage = 3, .length = 128}, transformer(huge), h100(1024))
          .wall,
      Wall::layer);
}

TEST(EstimatedWall, GoldenRecommendations) {
  const auto recommended = [](const char* size, int gpus) {
    return recommend(transformer(*transformer_of(size)), h100(gpus), {});
  };
  // What fits nowhere says how many GPUs its state needs.
  const Recommendation none = recommended("405B", 64);
  EXPECT_FALSE(none.best.has_value());
  EXPECT_EQ(none.gpus_needed, static_cast<std::size_t>(std::ceil(405.853e9 * 16 / 80e9)));
  for (const auto& [size, gpus] : {std::pair{"7B", 8}, {"7B", 64}, {"70B", 64}, {"405B", 512}}) {
    const Recommendation r = recommended(size, gpus);
    ASSERT_TRUE(r.best.has_value()) << size;
    EXPECT_LE(r.best->memory.total(), 80e9);
    for (const Estimate& e : r.kinds) {
      if (e.fits) {
        EXPECT_GE(e.time.total(), r.best->time.total());
      }
    }
    for (std::size_t i = 1; i < r.pareto.size(); ++i) {
      EXPECT_GE(r.pareto[i].time.total(), r.pareto[i - 1].time.total());
      EXPECT_LT(r.pareto[i].memory.total(), r.pareto[i - 1].memory.total());
    }
  }
  // 70B needs its parameters sharded: no mix with plain replicas of a whole model fits.
  for (const Estimate& e : recommended("70B", 64).kinds) {
    if (e.mix.stage == 0 && e.mix.tensor == 1 && e.mix.pipeline == 1) {
      EXPECT_FALSE(e.fits);
    }
  }
}

// torchtitan, Llama 3.1 8B on H100 (benchmarks/llama3_h100_202412): 5,762 tokens a second and GPU
// with 8, 5,605 with 128: 97 %.
TEST(EstimatedTime, ScalesAsAPublishedRun) {
  const Model model = transformer(*transformer_of("8B"));
  Mix mix{.shards = 8, .stage = 3, .recompute = true, .sequences = 2, .length = 8192};
  const double eight = estimate::estimate(mix, model, h100(8)).tokens_per_second() / 8;
  mix.shards = 128;
  const double many = estimate::estimate(mix, model, h100(128)).tokens_per_second() / 128;
  EXPECT_NEAR(many / eight, 0.97, 0.03);
}

// One sequence of a million tokens: a rank has no memory for its activations, nor for those of a
// tensor-parallel part. Ranks that share it have.
TEST(EstimatedWall, ALongSequenceIsShared) {
  const Model model = transformer(*transformer_of("8B"));
  const Recommendation r = recommend(model, h100(64), {.length = 1 << 20, .sequences = 1});
  ASSERT_TRUE(r.best.has_value());
  EXPECT_GT(r.best->mix.context, 1);
  EXPECT_EQ(r.best->mix.all_sequences(), 1u);
  EXPECT_EQ(r.best->mix.rows() * static_cast<std::size_t>(r.best->mix.context), 1u << 20);
  // Attention to so many tokens hides the ring.
  EXPECT_EQ(r.best->time.context, 0);
  for (const Estimate& e : r.kinds) {
    if (e.mix.context == 1) {
      EXPECT_FALSE(e.fits) << e.mix.text();
    }
  }
}

// By its own numbers: whatever is best with little memory is there with more, too.
TEST(EstimatedWall, MoreMemoryIsNeverWorse) {
  int better = 0, with_context = 0;
  const auto expect_no_worse = [&](const char* size, int gpus, const Job& job) {
    const Model model = transformer(*transformer_of(size));
    double before = HUGE_VAL;
    for (const double gigabytes : {6.0, 16.0, 24.0, 40.0, 50.0, 64.0, 80.0, 141.0, 288.0}) {
      estimate::Cluster cluster = h100(gpus);
      cluster.memory = gigabytes * 1e9;
      const Recommendation r = recommend(model, cluster, job);
      const std::string what = fmt::format("{}, {} GPUs of {} GB, {} sequences of {}", size, gpus,
                                           gigabytes, job.sequences, job.length);
      const double now = r.best ? r.best->time.total() : HUGE_VAL;
      EXPECT_LE(now, before) << what;
      if (r.best) {
        EXPECT_LE(r.best->memory.total(), cluster.memory) << what;
        if (now < before) ++better;
        if (r.best->mix.context > 1) ++with_context;
        // No mix of any kind that fits is faster.
        for (const Estimate& e : r.pareto) EXPECT_GE(e.time.total(), now) << what;
      }
      before = now;
    }
  };
  for (const char* size : {"1B", "8B", "70B", "8x7B"}) {
    for (const int gpus : {6, 8, 24}) {
      for (const std::size_t length : {1024U, 6144U, 98304U}) {
        expect_no_worse(size, gpus, {.length = length, .sequences = 64});
      }
    }
  }
  expect_no_worse("70B", 64, {.length = 1 << 20, .sequences = 4});
  expect_no_worse("405B", 512, {.length = 131072});
  EXPECT_GT(better, 40);
  EXPECT_GT(with_context, 40);
}

TEST(EstimatedTime, ShortPartsOfASequenceComputeSlower) {
  const Model model = transformer(*transformer_of("8B"));
  const auto compute = [&](int context, std::size_t length) {
    const Mix mix{.shards = 32, .context = context, .stage = 3, .length = length};
    return estimate::estimate(mix, model, h100(32)).time.compute * context;
  };
  EXPECT_EQ(compute(4, 1024), 2 * compute(1, 1024));
  EXPECT_NEAR(compute(4, 1 << 20) / compute(1, 1 << 20), 1, 0.01);
  // So a sequence that fits is not cut without need.
  const Recommendation r = recommend(model, h100(64), {.length = 4096, .sequences = 512});
  ASSERT_TRUE(r.best.has_value());
  EXPECT_EQ(r.best->mix.context, 1);
}

// No model has so many layers or experts: counting them one by one would take minutes.
TEST(EstimatedModel, MoreLayersThanCanBeAreRefused) {
  TransformerSizes s = *transformer_of("7B");
  for (const std::size_t layers : {std::size_t{100'000}, std::size_t{1'000'000'000}}) {
    s.num_hidden_layers = layers;
    const Error e = error_of([&] { transformer(s); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    EXPECT_EQ(std::string(e.what()),
              fmt::format("num_hidden_layers {} are too many: with 9 parameters each, an estimate "
                          "counts 11111 layers at most",
                          layers));
  }
  s = *transformer_of("8x7B");
  s.num_local_experts = 1'000'000;
  EXPECT_NE(std::string(error_of([&] { transformer(s); }).what()).find("num_local_experts"),
            std::string::npos);
}

TEST(EstimatedTime, AJobThatNoMixDividesIsRefused) {
  const Error e = error_of([] {
    recommend(transformer(*transformer_of("7B")), h100(97), {.length = 4096, .sequences = 7});
  });
  EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace tutti::test
