// Attention over a divided sequence is that of one rank, and has the same bits in every run.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/convert.h"
#include "parallel/mesh.h"
#include "parallel/sequence/attention.h"
#include "parallel/sequence/merge.h"
#include "tests/parallel/attention_ways.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel::sequence {
namespace {

using namespace attention_ways;
using test::run_thread_ranks;

/// The whole attention, by one call of the kernel; of narrow types in float64, without rounding.
Tensors alone(Way way) {
  Tensors given(way, kSequence, true);
  way.type = DataType::float64;
  Tensors t(way, kSequence, false);
  const auto widen = [](Tensor& from, Tensor& to) {
    const auto v = from.values();
    std::memcpy(to.data(), v.data(), v.size() * sizeof(double));
  };
  widen(given.q, t.q);
  widen(given.k, t.k);
  widen(given.v, t.v);
  widen(given.dout, t.dout);
  const Block block{.type = way.type,
                    .batch = kBatch,
                    .heads = way.heads,
                    .kv_heads = way.kv_heads,
                    .dim = kDim,
                    .queries = kSequence,
                    .keys = kSequence,
                    .causal = way.causal,
                    .q = t.q.data(),
                    .k = t.k.data(),
                    .v = t.v.data()};
  std::vector<double> lse(kSequence * kBatch * way.heads), delta(lse.size());
  const Kernel kernel = plain_kernel();
  kernel.forward({.block = block, .out = t.out.data(), .lse = lse.data()});
  dot_rows(way.type, lse.size(), kDim, t.out.data(), t.dout.data(), delta.data());
  kernel.backward({.block = block,
                   .out = t.out.data(),
                   .lse = lse.data(),
                   .dout = t.dout.data(),
                   .delta = delta.data(),
                   .dq = t.dq.data(),
                   .dk = t.dk.data(),
                   .dv = t.dv.data()});
  return t;
}

/// The largest difference of a rank's rows from those of one rank, as a part of the largest number.
double difference(const Tensor& mine, const Tensor& all,
                  const std::vector<std::size_t>& positions) {
  const std::vector<double> got = mine.values(), should = all.values();
  const std::size_t row = should.size() / kSequence;
  double worst = 0, most = 0;
  for (const double x : should) most = std::max(most, std::abs(x));
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double off = std::abs(got[i] - should[positions[i / row] * row + i % row]) / most;
    if (!(off <= worst)) worst = off;
  }
  return worst;
}

void compare(const Way& way, double close) {
  const Tensors one = alone(way);
  run_thread_ranks(static_cast<int>(way.ranks()), [&](Communicator& comm) {
    Mesh mesh(comm, {{"keys", way.keys_ranks}, {"heads", way.heads_ranks}});
    const AttentionAxes axes{&mesh.axis("heads"), &mesh.axis("keys")};
    std::vector<std::size_t> positions;
    const auto run = [&] {
      return attend(axes, way, [&](const ContextParallelAttention& layer, bool) {
        positions.clear();
        for (std::size_t i = 0; i < layer.rows(); ++i) positions.push_back(layer.position(i));
      });
    };
    const Tensors got = run();
    EXPECT_LE(difference(got.out, one.out, positions), close) << way.text();
    EXPECT_LE(difference(got.dq, one.dq, positions), close) << way.text();
    EXPECT_LE(difference(got.dk, one.dk, positions), close) << way.text();
    EXPECT_LE(difference(got.dv, one.dv, positions), close) << way.text();
    const Tensors again = run();
    EXPECT_EQ(again.out, got.out) << way.text();  // the same bits
    EXPECT_EQ(again.dq, got.dq) << way.text();
    EXPECT_EQ(again.dk, got.dk) << way.text();
    EXPECT_EQ(again.dv, got.dv) << way.text();
  });
}

constexpr SequenceOrder kOrders[] = {SequenceOrder::contiguous, SequenceOrder::zigzag};

TEST(SequenceAttention, OverARingIsThatOfOneRank) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const SequenceOrder order : kOrders) {
      for (const bool causal : {false, true}) {
        compare({.keys_ranks = ranks, .order = order, .causal = causal, .kv_heads = 2}, 1e-13);
      }
    }
  }
}

TEST(SequenceAttention, OfGatheredKeysIsThatOfOneRank) {
  for (const int ranks : {2, 3, 8}) {
    for (const SequenceOrder order : kOrders) {
      for (const bool causal : {false, true}) {
        compare({.keys_ranks = ranks,
                 .keys = KeysTravel::all_gather,
                 .order = order,
                 .causal = causal,
                 .kv_heads = 2},
                1e-13);
      }
    }
  }
}

TEST(SequenceAttention, OverDividedHeadsIsThatOfOneRank) {
  struct Heads {
    int ranks;
    std::size_t heads, kv_heads;
  };
  for (const Heads& h : {Heads{2, 4, 4}, Heads{4, 4, 4}, Heads{3, 7, 7}, Heads{3, 8, 4},
                         Heads{4, 8, 2}, Heads{3, 8, 2}, Heads{4, 6, 1}, Heads{8, 8, 4}}) {
    for (const bool causal : {false, true}) {
      compare({.heads_ranks = h.ranks, .causal = causal, .heads = h.heads, .kv_heads = h.kv_heads},
              1e-13);
    }
  }
}

TEST(SequenceAttention, OfBothNestedIsThatOfOneRank) {
  for (const KeysTravel keys : {KeysTravel::ring, KeysTravel::all_gather}) {
    for (const SequenceOrder order : kOrders) {
      compare({2, 2, keys, order, true, 4, 2}, 1e-13);
      compare({2, 4, keys, order, true, 5, 5}, 1e-13);
      compare({4, 2, keys, order, true, 8, 2}, 1e-13);
      compare({2, 3, keys, order, false, 6, 1}, 1e-13);
    }
  }
}

TEST(SequenceAttention, OfNarrowTypesIsThatOfOneRank) {
  for (const auto& [type, close] : {std::pair{DataType::float32, 2e-6},
                                    {DataType::float16, 3e-3},
                                    {DataType::bfloat16, 2e-2}}) {
    for (const KeysTravel keys : {KeysTravel::ring, KeysTravel::all_gather}) {
      compare({2, 4, keys, SequenceOrder::zigzag, true, 8, 1, type}, close);
    }
    compare({1, 8, KeysTravel::ring, SequenceOrder::contiguous, false, 4, 2, type}, close);
  }
}

// Blocks' results of 200 and seven times 1 with equal weights: 25.875, which bfloat16 has. Put
// together in bfloat16, they would be 26. Gradients of 256, seven times 1, and 256: 519, which
// rounds to 520. Added in bfloat16, they would be 512.
TEST(SequenceAttention, PutsNarrowResultsTogetherInFloat32) {
  const auto first_of = [](const void* data) {
    float x = 0;
    convert(data, DataType::bfloat16, &x, DataType::float32, 1);
    return x;
  };
  const auto fill = [](void* data, std::size_t count, float x) {
    const std::vector<float> v(count, x);
    convert(v.data(), DataType::float32, data, DataType::bfloat16, count);
  };
  const Kernel kernel{
      .forward =
          [&](const ForwardBlock& f) {
            fill(f.out, f.block.queries, first_of(f.block.k) == 0 ? 200 : 1);
            std::memset(f.lse, 0, f.block.queries * sizeof(float));
          },
      .backward =
          [&](const BackwardBlock& g) {
            const float x = first_of(g.block.q) == 0 ? 256 : 1;
            fill(g.dq, g.block.queries, x);
            fill(g.dk, g.block.keys, x);
            fill(g.dv, g.block.keys, x);
          },
  };
  run_thread_ranks(8, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ContextParallelAttention layer(
        {.keys = &axis},
        {.name = "a", .sequence = 16, .dim = 1, .type = DataType::bfloat16, .causal = false},
        kernel);
    std::vector<std::uint16_t> rank(2), out(2), dq(2), dk(2), dv(2);
    fill(rank.data(), 2, static_cast<float>(comm.rank()));
    ContextParallelAttention::Saved saved;
    layer.forward(rank.data(), rank.data(), rank.data(), out.data(), saved);
    EXPECT_EQ(first_of(&out[0]), 25.875f);
    EXPECT_EQ(first_of(&out[1]), 25.875f);
    layer.backward(out.data(), saved, dq.data(), dk.data(), dv.data());
    EXPECT_EQ(first_of(&dk[0]), comm.rank() == 0 ? 520 : 264);
    EXPECT_EQ(first_of(&dv[1]), comm.rank() == 0 ? 520 : 264);
    EXPECT_EQ(first_of(&dq[0]), comm.rank() == 0 ? 2048 : 8);
  });
}

}  // namespace
}  // namespace tutti::parallel::sequence
