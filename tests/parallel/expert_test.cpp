// Expert parallelism computes what one rank computes, carries what the formulas say, to the byte,
// takes no memory beyond what arrives, and hides the way of tokens behind the experts' work.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <functional>
#include <thread>

#include "core/convert.h"
#include "parallel/expert/expert_parallel.h"
#include "parallel/throttled_axis.h"
#include "tests/parallel/expert_model.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel::expert {
namespace {

using test::MoeCase;
using test::run_thread_ranks;
using Count = Traffic::Count;

constexpr double kClose = 1e-10;

// --- Training ------------------------------------------------------------------------------------

void expect_as_alone(int ranks, const MoeCase& c) {
  const auto expected = test::train_moe_alone(c, static_cast<std::size_t>(ranks));
  run_thread_ranks(ranks, [&](Communicator& comm) {
    const auto got = test::train_moe(comm, c);
    EXPECT_LE(test::difference(got, expected), kClose)
        << fmt::format("{} ranks, top {}, ep {}, capacity {}, favour {}", ranks, c.top_k, c.ep,
                       c.capacity_factor.value_or(0), c.favour);
    // The same bits in each run, and on each rank.
    EXPECT_EQ(test::train_moe(comm, c), got);
    for (test::Matrix first : got) {
      const auto own = first.values;
      comm.broadcast(first.data(), first.data(), first.values.size(), DataType::float64, 0);
      EXPECT_EQ(first.values, own);
    }
  });
}

TEST(Expert, EqualsOneRank) {
  for (const int ranks : {1, 2, 4, 8}) {
    for (const std::size_t top_k : {1u, 2u}) {
      expect_as_alone(ranks, {.top_k = top_k});
      expect_as_alone(ranks, {.top_k = top_k, .overlap = false});
      expect_as_alone(ranks, {.top_k = top_k, .favour = 60});
      expect_as_alone(ranks, {.top_k = top_k, .capacity_factor = 1.0});
    }
    expect_as_alone(ranks, {.top_k = 3, .renormalizes = true, .capacity_factor = 0.5});
  }
}

// semantics.md: E3
TEST(Expert, EqualsOneRankBesideDataParallelAndShardedEngines) {
  for (const MoeCase::Data data : {MoeCase::Data::replicated, MoeCase::Data::sharded}) {
    for (const int ep : {1, 2, 4, 8}) {
      expect_as_alone(8, {.top_k = 2, .data = data, .ep = ep});
    }
    expect_as_alone(8, {.top_k = 2, .favour = 60, .data = data, .ep = 4});
  }
}

// --- What travels --------------------------------------------------------------------------------

constexpr std::size_t kWidth = 5;

/// Token t of a rank goes to experts f(t), f(t) + 1, ..., with weights of 1.
Routing route(std::size_t tokens, std::size_t top_k, std::size_t experts,
              const std::function<std::size_t(std::size_t)>& first) {
  Routing r{.top_k = top_k, .experts = {}, .weights = {}};
  for (std::size_t t = 0; t < tokens; ++t) {
    for (std::size_t j = 0; j < top_k; ++j) {
      r.experts.push_back(static_cast<std::int64_t>((first(t) + j) % experts));
      r.weights.push_back(1);
    }
  }
  return r;
}

/// Numbers that say whose they are.
std::vector<double> rows_of(int rank, std::size_t tokens) {
  std::vector<double> x(tokens * kWidth);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = 1000 * (rank + 1) + static_cast<double>(i);
  return x;
}

const Forward kCopies = [](std::size_t, const void* rows, std::size_t count, void* results) {
  std::memcpy(results, rows, count * kWidth * sizeof(double));
};
const Backward kCopiesBack = [](std::size_t, const void*, const void* dresults, std::size_t count,
                                void* drows) {
  std::memcpy(drows, dresults, count * kWidth * sizeof(double));
};

/// A forward and a backward; the traffic of both.
Traffic go(Axis& axis, ExpertParallel& layer, const Routing& routing, Saved& saved) {
  const std::vector<double> x = rows_of(axis.rank(), routing.tokens());
  std::vector<double> y(x.size()), dx(x.size()), dweights(routing.weights.size());
  axis.reset_traffic();
  layer.forward(x.data(), routing, kCopies, y.data(), saved);
  layer.backward(x.data(), kCopiesBack, saved, dx.data(), dweights);
  const auto k = static_cast<double>(routing.top_k);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(y[i], k * x[i]);
    EXPECT_EQ(dx[i], k * x[i]);
  }
  for (std::size_t c = 0; c < dweights.size(); ++c) {
    double product = 0;
    for (std::size_t i = 0; i < kWidth; ++i) {
      const double v = x[c / routing.top_k * kWidth + i];
      product += v * v;
    }
    EXPECT_EQ(dweights[c], product);
  }
  return axis.traffic();
}

ExpertParallel layer_of(Axis& axis, std::size_t experts, std::size_t top_k,
                        ExpertOptions options = {}) {
  return {axis,
          {.name = "moe",
           .experts = experts,
           .width = kWidth,
           .type = DataType::float64,
           .top_k = top_k},
          options};
}

TEST(Expert, CarriesWhatTheFormulasSay) {
  constexpr std::size_t kExperts = 8, kTokens = 24;
  for (const int ranks : {1, 2, 4, 8}) {
    for (const std::size_t top_k : {1u, 2u}) {
      for (const bool overlap : {false, true}) {
        run_thread_ranks(ranks, [&](Communicator& comm) {
          CommunicatorAxis axis(comm);
          ExpertParallel layer = layer_of(axis, kExperts, top_k, {.overlap = overlap});
          Saved saved;
          const auto p = static_cast<std::uint64_t>(ranks);
          const std::uint64_t row = kWidth * 8, local = kExperts / p;
          // Balanced: 4 (P - 1) / P t k h.
          const Traffic t =
              go(axis, layer, route(kTokens, top_k, kExperts, std::identity()), saved);
          const std::uint64_t bytes = 4 * (p - 1) * kTokens * top_k * row / p;
          EXPECT_EQ(t[Collective::all_to_all_v], (Count{4 * local, bytes, bytes}));
          const std::uint64_t counts = (p - 1) * 8 * (local + 1);
          EXPECT_EQ(t[Collective::all_to_all], (Count{1, counts, counts}));
          EXPECT_EQ(t.total().calls, 4 * local + 1);
        });
      }
    }
  }
}

TEST(Expert, TakesNoMemoryBeyondWhatArrives) {
  constexpr std::size_t kTokens = 40;
  run_thread_ranks(4, [&](Communicator& comm) {
    CommunicatorAxis axis(comm);
    const auto rank = static_cast<std::size_t>(comm.rank());
    for (const std::size_t experts : {4u, 8u}) {
      ExpertParallel layer = layer_of(axis, experts, 1);
      Saved saved;
      // All tokens of all ranks to expert 0, and each rank has others.
      const std::size_t tokens = kTokens + rank, all = 4 * kTokens + 6;
      const Traffic t =
          go(axis, layer, route(tokens, 1, experts, [](std::size_t) { return 0; }), saved);
      const std::size_t received = rank == 0 ? all : 0, row = kWidth * 8;
      EXPECT_EQ(layer.memory().peak, (3 * received + 2 * tokens) * row);
      EXPECT_EQ(saved.received()[0], received);
      EXPECT_EQ(saved.dropped(), 0u);
      const std::uint64_t others = rank == 0 ? (all - tokens) * row : 0;
      const std::uint64_t own = rank == 0 ? 0 : tokens * row;
      EXPECT_EQ(t[Collective::all_to_all_v],
                (Count{4 * layer.local_experts(), 2 * (own + others), 2 * (own + others)}));
      // Less than that needs no more.
      go(axis, layer, route(3, 1, experts, [](std::size_t) { return 0; }), saved);
      EXPECT_EQ(layer.memory().peak, (3 * received + 2 * tokens) * row);
    }
  });
}

TEST(Expert, RowsComeInTheOrderOfRanksAndTokens) {
  run_thread_ranks(3, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ExpertParallel layer = layer_of(axis, 6, 2);
    // Rank 1 has no tokens, and expert 4 gets none.
    const auto tokens_of = [](int rank) { return rank == 1 ? 0u : 7u + unsigned(rank); };
    const auto expert_of = [](std::size_t t) { return t % 2 == 0 ? 5u : 2u; };  // and 0, and 3
    const Routing routing = route(tokens_of(comm.rank()), 2, 6, expert_of);
    const std::vector<double> x = rows_of(comm.rank(), routing.tokens());
    std::vector<double> y(x.size());
    Saved saved;
    std::vector<std::size_t> ran;
    layer.forward(
        x.data(), routing,
        [&](std::size_t local, const void* rows, std::size_t count, void* results) {
          const std::size_t expert = layer.first_expert() + local;
          ran.push_back(expert);
          std::vector<double> expected;
          for (const int r : {0, 1, 2}) {
            const std::vector<double> theirs = rows_of(r, tokens_of(r));
            for (std::size_t t = 0; t < tokens_of(r); ++t) {
              if (expert_of(t) != expert && (expert_of(t) + 1) % 6 != expert) continue;
              expected.insert(expected.end(), &theirs[t * kWidth], &theirs[t * kWidth] + kWidth);
            }
          }
          const auto* const got = static_cast<const double*>(rows);
          EXPECT_EQ(std::vector<double>(got, got + count * kWidth), expected);
          kCopies(local, rows, count, results);
        },
        y.data(), saved);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], 2 * x[i]);
    const std::vector<std::size_t> with_rows[] = {{0}, {2, 3}, {5}};
    EXPECT_EQ(ran, with_rows[comm.rank()]);
  });
}

TEST(Expert, CapacityPrefersFirstChoicesAndEarlierTokens) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    // 4 tokens x 2 choices among 4 experts: an expert takes 2 rows of a rank.
    ExpertParallel layer = layer_of(axis, 4, 2, {.capacity_factor = 1.0});
    const Routing routing{.top_k = 2,
                          .experts = {0, 1, 1, 2, 1, 0, 1, 3},
                          .weights = {1, 10, 100, 1e3, 1e4, 1e5, 1e6, 1e7}};
    const std::vector<double> x(4 * kWidth, comm.rank() + 1);
    std::vector<double> y(x.size());
    Saved saved;
    layer.forward(x.data(), routing, kCopies, y.data(), saved);
    // Expert 1 has the first choices of tokens 1 and 2: neither token 3's, nor token 0's second.
    const double expected[] = {1, 1100, 110000, 1e7};
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], expected[i / kWidth] * x[i]);
    EXPECT_EQ(saved.dropped(), 2u);
    std::vector<double> dx(x.size()), dweights(8, -1);
    layer.backward(x.data(), kCopiesBack, saved, dx.data(), dweights);
    EXPECT_EQ(dx, y);
    for (std::size_t c = 0; c < 8; ++c) {
      EXPECT_EQ(dweights[c], c == 1 || c == 6 ? 0 : kWidth * x[0] * x[0]);
    }
  });
}

TEST(Expert, CarriesAllFloatingPointTypes) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    for (const DataType type :
         {DataType::float32, DataType::float16, DataType::bfloat16, DataType::float64}) {
      ExpertParallel layer(axis,
                           {.name = "moe", .experts = 4, .width = 3, .type = type, .top_k = 2});
      Routing routing = route(4, 2, 4, std::identity());
      for (double& w : routing.weights) w = 0.5;
      std::vector<float> values(12);
      for (std::size_t i = 0; i < 12; ++i) values[i] = float(i) + 16.0f * float(comm.rank());
      std::vector<std::byte> x(12 * size_of(type)), y(x.size());
      convert(values.data(), DataType::float32, x.data(), type, 12);
      Saved saved;
      layer.forward(
          x.data(), routing,
          [&](std::size_t, const void* rows, std::size_t count, void* results) {
            std::memcpy(results, rows, count * 3 * size_of(type));
          },
          y.data(), saved);
      EXPECT_EQ(y, x);
    }
  });
}

// Several micro-batches may be under way.
TEST(Expert, BackwardsMayComeInAnyOrder) {
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis axis(comm);
    ExpertParallel layer = layer_of(axis, 4, 1);
    Saved saved[3];
    const std::vector<double> x = rows_of(comm.rank(), 9);
    std::vector<double> y(x.size()), dx(x.size()), dweights(9);
    for (std::size_t m = 0; m < 3; ++m) {
      layer.forward(x.data(), route(9, 1, 4, [&](std::size_t t) { return t * m % 4; }), kCopies,
                    y.data(), saved[m]);
    }
    for (const std::size_t m : {1u, 0u, 2u}) {
      layer.backward(x.data(), kCopiesBack, saved[m], dx.data(), dweights);
      EXPECT_EQ(dx, x);
    }
  });
}

// Experts that take a while, without a core, over a link on which all rows of a wave take as long:
// most of it is hidden.
TEST(Expert, HidesTheWayBehindTheExpertsWork) {
  using namespace std::chrono_literals;
  run_thread_ranks(2, [](Communicator& comm) {
    CommunicatorAxis beneath(comm);
    constexpr std::size_t kTokens = 64, kLocal = 4;
    std::chrono::nanoseconds waited[2]{1h, 1h};
    for (int attempt = 0; attempt < 4; ++attempt) {
      const bool overlap = attempt % 2 == 1;
      // Half of the rows travel, there and back: in 80 ms.
      ThrottledAxis axis(beneath, {.bytes_per_second = kTokens * kWidth * 8 / 0.08});
      ExpertParallel layer = layer_of(axis, kLocal * 2, 1, {.overlap = overlap});
      const Routing routing = route(kTokens, 1, kLocal * 2, std::identity());
      const std::vector<double> x = rows_of(comm.rank(), kTokens);
      std::vector<double> y(x.size());
      Saved saved;
      axis.run(call_of(Collective::barrier, nullptr, nullptr, 0, DataType::float64));
      axis.reset_traffic();
      layer.forward(
          x.data(), routing,
          [](std::size_t e, const void* rows, std::size_t count, void* results) {
            std::this_thread::sleep_for(20ms);
            kCopies(e, rows, count, results);
          },
          y.data(), saved);
      EXPECT_EQ(y, x);
      std::chrono::nanoseconds& least = waited[overlap ? 1 : 0];
      least = std::min(least, axis.traffic().waited);
    }
    // The first wave there and the last one back, of four each; a busy machine makes more of it.
    EXPECT_GE(waited[0], 75ms);
    EXPECT_LE(waited[1], waited[0] * 2 / 3);
  });
}

}  // namespace
}  // namespace tutti::parallel::expert
