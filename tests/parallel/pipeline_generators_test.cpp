// The pipeline schedules that Tutti knows: each is proved, takes as long as the textbook says, and
// keeps as many activations. TUTTI_TEST_MANY_MICRO_BATCHES=1 proves more than time allows by
// default.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "core/error.h"
#include "parallel/pipeline/generate.h"
#include "parallel/pipeline/simulate.h"
#include "parallel/pipeline/verify.h"
#include "tests/parallel/formula.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel::pipeline {
namespace {

Schedule make(std::string_view name, int ranks, int micro_batches, int chunks = 0) {
  return generate(*find_generator(name), {ranks, micro_batches, chunks});
}

TEST(PipelineGenerators, AllAreProved) {
  const bool all = std::getenv("TUTTI_TEST_MANY_MICRO_BATCHES") != nullptr;
  int schedules = 0;
  for (const Generator& g : generators()) {
    for (int chunks = g.any_chunks ? 1 : g.chunks; chunks <= (g.any_chunks ? 4 : g.chunks);
         ++chunks) {
      for (int p = 1; p <= 16; ++p) {
        for (int m = 1; m <= 64; ++m) {
          if (!all && m > 20 && m % 16 > 1) continue;
          SCOPED_TRACE(fmt::format("{} {} ranks {} micro-batches {} chunks", g.name, p, m, chunks));
          const Schedule s = generate(g, {p, m, chunks});
          const Verdict verdict = verify(s);
          ASSERT_TRUE(verdict.proved) << verdict.story;
          ASSERT_EQ(s.ranks(), p);
          ASSERT_EQ(s.stages(), p * chunks);
          ASSERT_EQ(s.micro_batches, m);
          ++schedules;
        }
      }
    }
  }
  EXPECT_EQ(schedules, 10 * 16 * (all ? 64 : 25));
}

/// Within 1 %.
#define EXPECT_TEXTBOOK(value, textbook) EXPECT_NEAR(value, textbook, 0.01 * (textbook) + 1e-9)

struct Times {
  double f, i, w;
};
constexpr Times kTimes[] = {{10, 10, 10}, {10, 12, 8}, {7, 9, 5}, {3, 8, 2}};

TEST(PipelineGenerators, GpipeAnd1f1bTakeWhatTheTextbookSays) {
  for (const int p : {1, 2, 4, 8, 16}) {
    for (const int m : {1, 4, 8, 33}) {
      for (const auto& [f, i, w] : kTimes) {
        SCOPED_TRACE(fmt::format("{} ranks {} micro-batches F={} I={} W={}", p, m, f, i, w));
        const double b = i + w;
        for (const auto* name : {"gpipe", "1f1b"}) {
          const Simulation result = simulate(make(name, p, m), {f, i, w, 0});
          EXPECT_TEXTBOOK(result.makespan, (m + p - 1) * (f + b)) << name;
          EXPECT_TEXTBOOK(result.bubble, (p - 1) * (f + b)) << name;
        }
      }
    }
  }
}

TEST(PipelineGenerators, InterleavedDividesTheBubble) {
  for (const int p : {2, 4, 8}) {
    for (const int v : {1, 2, 3, 4}) {
      for (const int rounds : {1, 2, 3}) {
        for (const auto& [f, i, w] : kTimes) {
          SCOPED_TRACE(
              fmt::format("{} ranks {} rounds v={} F={} I={} W={}", p, rounds, v, f, i, w));
          const int m = p * rounds;
          const double b = i + w;
          const Simulation result =
              simulate(make("interleaved", p, m, v), {f / v, i / v, w / v, 0});
          EXPECT_TEXTBOOK(result.makespan, m * (f + b) + (p - 1) * (f + b) / v);
          EXPECT_TEXTBOOK(result.bubble, (p - 1) * (f + b) / v);
        }
      }
    }
  }
}

// A schedule does what the list says of it, for all times for which the list says so.
TEST(PipelineGenerators, WaitAsTheirFormulasSay) {
  constexpr double kSomeTimes[] = {0, 7, 8, 10, 12};
  for (const Generator& g : generators()) {
    const bool equal_only = g.bubble.find("if F=I=W") != std::string_view::npos;
    for (const int p : {2, 5}) {
      for (const int m : {2 * p, 3 * p}) {
        const Schedule s = generate(g, {p, m, 0});
        const double v = s.stages() / p;
        for (const double f : kSomeTimes) {
          for (const double i : kSomeTimes) {
            for (const double w : kSomeTimes) {
              if (equal_only && (f != i || f != w)) continue;
              SCOPED_TRACE(fmt::format("{}: {} ranks {} micro-batches F={} I={} W={}", g.name, p, m,
                                       f, i, w));
              const double said =
                  test::Formula(
                      g.bubble,
                      {{'p', p}, {'m', m}, {'v', v}, {'F', f}, {'B', i + w}, {'I', i}, {'W', w}})
                      .value();
              EXPECT_NEAR(simulate(s, {f / v, i / v, w / v, 0}).bubble, said, 1e-9);
            }
          }
        }
        const auto live = verify(s).live;
        EXPECT_DOUBLE_EQ(*std::max_element(live.begin(), live.end()) / v,
                         test::Formula(g.live, {{'p', p}, {'m', m}, {'v', v}}).value())
            << g.name;
      }
    }
  }
}

// A last round that is not full costs more.
TEST(PipelineGenerators, InterleavedWantsRoundsThatAreFull) {
  const auto bubble = [](int m) {
    return simulate(make("interleaved", 4, m, 2), {0.5, 0.5, 0.5, 0}).bubble;
  };
  EXPECT_DOUBLE_EQ(bubble(16), 4.5);
  EXPECT_DOUBLE_EQ(bubble(17), 7.5);
  EXPECT_DOUBLE_EQ(bubble(20), 4.5);
}

// Times that are no binary fractions: 41.8 and 41.8 again, by another way.
TEST(PipelineGenerators, RoundingIsNoWait) {
  const Simulation result = simulate(make("gpipe", 5, 3), {3, 5, 1, 0.7});
  EXPECT_EQ(result.ranks[4].bubble, 0);
  EXPECT_GT(result.ranks[3].bubble, 1);
  for (const auto& rank : result.ranks) {
    EXPECT_NEAR(rank.last - rank.first, rank.busy + rank.bubble, 1e-9);
  }
}

TEST(PipelineGenerators, ZeroBubbleVHasNone) {
  for (const int p : {1, 2, 4, 8, 16}) {
    for (const int m : {2 * p, 2 * p + 3, 4 * p}) {
      SCOPED_TRACE(fmt::format("{} ranks {} micro-batches", p, m));
      EXPECT_NEAR(simulate(make("zb-v", p, m), {5, 5, 5, 0}).bubble, 0, 1e-9);
    }
  }
}

// The published (p - 1)(F&B + B - 3W), of stages, is for forwards and backwards that overlap for
// F&B; here they take F + B, and the results of the forward are sent before the backward runs.
TEST(PipelineGenerators, DualpipeVWaitsLessThanPublished) {
  for (const int p : {2, 4, 8, 16}) {
    for (const int m : {2 * p, 2 * p + 3, 4 * p}) {
      for (const auto& [f, i, w] : {Times{5, 5, 5}, Times{5, 6, 4}}) {
        SCOPED_TRACE(fmt::format("{} ranks {} micro-batches F={} I={} W={}", p, m, f, i, w));
        const double bubble = simulate(make("dualpipe-v", p, m), {f, i, w, 0}).bubble;
        if (f == i && i == w) {
          EXPECT_TEXTBOOK(bubble, (p - 1) * f);
        }
        EXPECT_LE(bubble, (p - 1) * ((f + i + w) + (i + w) - 3 * w));
      }
    }
  }
}

// What the checklists of the field compute by hand.
TEST(PipelineGenerators, FourRanksTakeWhatIsComputedByHand) {
  const Costs costs{10, 10, 10, 0};
  EXPECT_DOUBLE_EQ(simulate(make("gpipe", 4, 8), costs).makespan, 330);
  EXPECT_DOUBLE_EQ(simulate(make("1f1b", 4, 8), costs).makespan, 330);
  EXPECT_DOUBLE_EQ(simulate(make("interleaved", 4, 8, 2), {5, 5, 5, 0}).makespan, 285);
  EXPECT_DOUBLE_EQ(simulate(make("zb-h1", 4, 8), costs).makespan, 270);
  const Simulation h2 = simulate(make("zb-h2", 4, 8), costs);
  for (const auto& rank : h2.ranks) EXPECT_DOUBLE_EQ(rank.last - rank.first, 240);
  const Simulation v = simulate(make("zb-v", 4, 8), {5, 5, 5, 0});
  for (const auto& rank : v.ranks) EXPECT_DOUBLE_EQ(rank.last - rank.first, 240);
}

TEST(PipelineGenerators, KeepAsManyActivationsAsTheirFormulasSay) {
  for (const int p : {1, 2, 4, 8}) {
    const int m = 4 * p;
    SCOPED_TRACE(p);
    const auto live = [&](std::string_view name, int chunks = 0) {
      return verify(make(name, p, m, chunks)).live;
    };
    for (int r = 0; r < p; ++r) {
      const auto i = static_cast<std::size_t>(r);
      EXPECT_EQ(live("gpipe")[i], m);
      EXPECT_EQ(live("1f1b")[i], p - r);
      EXPECT_EQ(live("zb-h1")[i], p);
      EXPECT_EQ(live("zb-h2")[i], 2 * p - 1);
      // Of half as large stages.
      EXPECT_EQ(live("zb-v")[i], 2 * p);
      EXPECT_EQ(live("dualpipe-v")[i], 2 * p + 1);
    }
    // p (1 + (p - 1) / (p v)) activations of all of a rank's stages.
    for (const int v : {2, 3}) EXPECT_EQ(live("interleaved", v)[0], p * v + p - 1) << v;
    EXPECT_EQ(make("1f1b", p, m).live, p);
    EXPECT_EQ(make("gpipe", p, m).live, m);
  }
}

TEST(PipelineGenerators, BuffersAreTheFewestThatCostNoTime) {
  const Costs costs{1, 1, 1, 0.5};
  for (const Generator& g : generators()) {
    SCOPED_TRACE(g.name);
    Schedule s = generate(g, {4, 12, 0});
    const double best = simulate(s, costs).makespan;
    s.buffers += 1;
    EXPECT_EQ(simulate(s, costs).makespan, best);
    s.buffers = 12;
    EXPECT_EQ(simulate(s, costs).makespan, best);
  }
}

TEST(PipelineGenerators, RefuseWhatTheyCannotMake) {
  const auto refusal = [](std::string_view name, Request request) {
    const Error e = test::error_of([&] { generate(*find_generator(name), request); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
    return std::string(e.what());
  };
  EXPECT_EQ(refusal("1f1b", {0, 1, 0}), "1f1b: there are 1 to 4096 ranks, not 0");
  EXPECT_EQ(refusal("1f1b", {1, -1, 0}), "1f1b: there are 1 to 65536 micro-batches, not -1");
  EXPECT_EQ(refusal("1f1b", {4, 8, 2}), "1f1b has 1 stage on each rank, not 2");
  EXPECT_EQ(refusal("zb-v", {4, 8, 3}), "zb-v has 2 stages on each rank, not 3");
  EXPECT_EQ(refusal("interleaved", {4096, 8, 5}),
            "interleaved: there are 1 to 4 stages on each rank, not 5");
  refusal("gpipe", {4096, 65536, 0});
  EXPECT_EQ(find_generator("nothing"), nullptr);
}

}  // namespace
}  // namespace tutti::parallel::pipeline
