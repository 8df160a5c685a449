// The estimator says what the layers carry and hold that are no linear layers: the attention of a
// shared sequence, and experts. Calls and bytes exactly.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>

#include "parallel/estimate/recommend.h"
#include "parallel/expert/expert_parallel.h"
#include "parallel/mesh.h"
#include "parallel/sequence/attention.h"
#include "tests/parallel/traffic_text.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

using namespace parallel;
using namespace parallel::estimate;

/// What the attention of a shared sequence carries for the blocks of a model, and holds in a call.
void expect_attention_carries(Model model, Mix mix, std::size_t kv_heads) {
  model.kv_heads = kv_heads;
  check(mix, model);
  const StepTraffic expected = traffic(mix, model, 0);
  const double held = memory(mix, model, 0).in_use;
  const DataType type = mix.precision.compute;
  const Mix shared = mix;
  mix.context = mix.heads = 1;  // as many tokens, without a ring
  mix.length /= static_cast<std::size_t>(shared.context);
  const double without = memory(mix, model, 0).in_use;
  run_thread_ranks(shared.context, [&](Communicator& world) {
    Mesh mesh(world, {{"ring", shared.ring()}, {"heads", shared.heads}});
    Axis &ring = mesh.axis("ring"), &heads = mesh.axis("heads");
    sequence::ContextParallelAttention layer(
        {.heads = shared.heads > 1 ? &heads : nullptr, .keys = &ring},
        {.name = "block",
         .sequence = shared.length,
         .heads = model.heads,
         .kv_heads = kv_heads,
         .dim = model.head_size,
         .type = type},
        sequence::plain_kernel(),
        {.order = shared.ring() > 1 ? sequence::SequenceOrder::zigzag
                                    : sequence::SequenceOrder::contiguous});
    const std::size_t bytes = layer.rows() * model.heads * model.head_size * size_of(type);
    std::vector<std::byte> q(bytes), out(bytes), dq(bytes), dk(bytes), dv(bytes);
    sequence::ContextParallelAttention::Saved saved;
    ring.reset_traffic();
    heads.reset_traffic();
    for (std::size_t i = 0; i < model.blocks * shared.micro_batches; ++i) {
      for (int times = 0; times < (shared.recompute ? 2 : 1); ++times) {
        layer.forward(q.data(), q.data(), q.data(), out.data(), saved);
      }
      layer.backward(out.data(), saved, dq.data(), dk.data(), dv.data());
    }
    // Where ranks have unequal numbers of heads, the estimate is the first one's.
    if (world.rank() > 0 && model.heads % 4 != 0) return;
    EXPECT_EQ(text_of(shared.ring() > 1 ? ring.traffic() : Traffic()), text_of(expected.context));
    EXPECT_EQ(text_of(shared.heads > 1 ? heads.traffic() : Traffic()), text_of(expected.heads));
    EXPECT_EQ(static_cast<double>(layer.call_bytes()), held - without);
  });
}

TEST(EstimatedTraffic, OfASharedSequenceIsWhatTheAttentionCarries) {
  const Model model = transformer({.name = "small",
                                   .hidden_size = 64,
                                   .num_hidden_layers = 3,
                                   .num_attention_heads = 8,
                                   .num_key_value_heads = 2,
                                   .head_dim = 16,
                                   .intermediate_size = 128,
                                   .vocab_size = 100});
  struct Case {
    int context, heads;
    std::size_t kv_heads = 2;
  };
  for (const Case& c :
       {Case{2, 1}, Case{4, 1}, Case{2, 2}, Case{4, 2}, Case{4, 4}, Case{4, 4, 8}, Case{4, 2, 8}}) {
    for (const bool recompute : {false, true}) {
      for (const DataType type : {DataType::bfloat16, DataType::float64}) {
        SCOPED_TRACE(fmt::format("context {}, heads {} of {}, recompute {}, {}", c.context, c.heads,
                                 c.kv_heads, recompute, name(type)));
        expect_attention_carries(model,
                                 {.shards = 4,
                                  .context = c.context,
                                  .heads = c.heads,
                                  .stage = 3,
                                  .recompute = recompute,
                                  .precision = Precision::of(type),
                                  .length = 64,
                                  .micro_batches = 2},
                                 c.kv_heads);
      }
    }
  }
  // Two ranks have 2 and 4 of 6 query heads.
  Model uneven = model;
  uneven.heads = 6;
  expect_attention_carries(
      uneven, {.shards = 2, .context = 2, .heads = 2, .length = 64, .micro_batches = 1}, 3);
}

// A layer of experts whose tokens go to all of them equally often.
TEST(EstimatedTraffic, OfExpertsIsWhatTheEngineCarries) {
  const Model model = transformer({.name = "small",
                                   .hidden_size = 64,
                                   .num_hidden_layers = 3,
                                   .num_attention_heads = 8,
                                   .intermediate_size = 128,
                                   .vocab_size = 100,
                                   .num_local_experts = 8,
                                   .num_experts_per_tok = 2});
  for (const int ranks : {2, 4}) {
    for (const bool recompute : {false, true}) {
      const Mix mix{.shards = ranks,
                    .experts = ranks,
                    .stage = 3,
                    .recompute = recompute,
                    .precision = Precision::of(DataType::bfloat16),
                    .length = 32,
                    .micro_batches = 2};
      check(mix, model);
      StepTraffic expected = traffic(mix, model, 0);
      // The norm's number is no part of the layer.
      EXPECT_EQ(expected.experts[Collective::all_gather].calls, 1u);
      expected.experts[Collective::all_gather] = {};
      run_thread_ranks(ranks, [&](Communicator& world) {
        CommunicatorAxis axis(world), all(world);
        expert::ExpertParallel layer(
            axis,
            {.name = "moe", .experts = 8, .width = 64, .type = DataType::bfloat16, .top_k = 2});
        const expert::Router router("moe", {.experts = 8, .top_k = 2});
        expert::Routed routed;
        routed.top_k = 2;
        for (std::int64_t t = 0; t < 32; ++t) {
          for (const std::int64_t e : {t % 8, (t + 3) % 8}) routed.experts.push_back(e);
        }
        routed.weights.assign(64, 0.5);
        routed.probabilities.assign(32 * 8, 0.125);
        std::vector<std::byte> x(32 * 64 * 2), y(x.size()), dx(x.size());
        std::vector<double> dweights(64);
        expert::Saved saved;
        axis.reset_traffic();
        all.reset_traffic();
        for (std::size_t i = 0; i < model.blocks * mix.micro_batches; ++i) {
          for (int times = 0; times < (recompute ? 2 : 1); ++times) {
            (void)router.balance(all, routed);
            layer.forward(
                x.data(), routed,
                [](std::size_t, const void* rows, std::size_t count, void* results) {
                  std::memcpy(results, rows, count * 64 * 2);
                },
                y.data(), saved);
          }
          layer.backward(
              y.data(),
              [](std::size_t, const void*, const void* dresults, std::size_t count, void* drows) {
                std::memcpy(drows, dresults, count * 64 * 2);
              },
              saved, dx.data(), dweights);
        }
        EXPECT_EQ(text_of(axis.traffic()), text_of(expected.experts));
        EXPECT_EQ(text_of(all.traffic()), text_of(expected.balance));
        // Rows that came, those that returned, and what the engine keeps for the next call.
        EXPECT_EQ(layer.memory().bytes, 5u * 64 * 64 * 2);
        const Model without = [&] {
          Model m = model;
          m.experts = 0;
          return m;
        }();
        Mix dense = mix;
        dense.experts = 1;
        const Mix of_rank = of_experts(mix);
        const MemoryByKind units = engine_memory(of_rank, expert_units_of(mix, model, 0));
        EXPECT_EQ(memory(mix, model, 0).in_use - units.in_use - memory(dense, without, 0).in_use,
                  3.0 * 3 * 64 * 64 * 2);
      });
    }
  }
}

TEST(EstimatedMemory, OfExpertsIsDividedAmongTheRanksThatShareThem) {
  const Model model = transformer(*transformer_of("8x7B"));
  const auto whole = static_cast<double>(model.parameters()),
             experts = static_cast<double>(model.blocks * model.experts * model.expert.count());
  const Mix mix{.shards = 8, .experts = 8, .stage = 0};
  EXPECT_EQ(memory(mix, model, 0).parameters, 2 * (whole - experts + experts / 8) * 3);
  EXPECT_EQ(memory(mix, model, 0).optimizer, 8 * (whole - experts + experts / 8));
  // All ranks of a job share all of it, however they do.
  Mix sharded{.shards = 8, .stage = 3};
  const double state = memory(sharded, model, 0).state();
  sharded.experts = 4;
  EXPECT_NEAR(memory(sharded, model, 0).state() / state, 1, 1e-6);
  // A token computes with two of eight.
  EXPECT_NEAR(model.forward_flops(0) / 2, whole - experts * 6 / 8, 0.02 * whole);
}

}  // namespace
}  // namespace tutti::test
