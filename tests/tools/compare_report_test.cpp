// `tutti compare`: the figures that it makes of measured times, and the data that its programs
// check their results with.
#include "laboratory/compare/compare_report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "laboratory/peers/pattern.h"
#include "tests/support/contains.h"

namespace tutti::compare {
namespace {

TEST(CompareReport, FindsMedianAndQuartiles) {
  const auto expect_figure = [](const Times& times, double median, double low, double high) {
    const Figure figure = figure_of(times);
    EXPECT_EQ(figure.median, median);
    EXPECT_EQ(figure.low, low);
    EXPECT_EQ(figure.high, high);
  };
  EXPECT_TRUE(std::isnan(figure_of({}).median));
  expect_figure({3}, 3, 3, 3);
  expect_figure({9, 1, 4}, 4, 2.5, 6.5);
  expect_figure({9, 1, 4, 2}, 3, 1.75, 5.25);
  expect_figure({5, 4, 3, 2, 1}, 3, 2, 4);
}

TEST(CompareReport, AFigureIsSteadyUpToASpreadOfItself) {
  EXPECT_TRUE((Figure{1, 0.5, 1.5}).steady());
  EXPECT_FALSE((Figure{1, 0.5, 1.6}).steady());
  EXPECT_FALSE(figure_of({}).steady());
}

/// A machine that is four times as slow in one round as in the other two, and one peer that does
/// not mind.
std::vector<Row> example() {
  Row small{Collective::all_reduce, 8, DataType::float32, 4, "malloc", {0.5, 2, 0.5}, {}, {}};
  small.peers = {{"gloo", {200, 200, 200}}, {"mpich", {1, 4, 1}}, {"openmpi", {2, 3, 2}}};
  small.limit = {{0.125, 2, 0.5}, {0.25, 0.75, 0.75}};
  Row large{
      Collective::all_reduce, 1 << 20, DataType::float32, 4, "malloc", {100, 100, 100}, {}, {}};
  return {small, large};
}

TEST(CompareReport, RatiosAreOfTheSameRound) {
  const auto rows = example();
  EXPECT_EQ(rows[0].best_peer(), "mpich");
  EXPECT_EQ(rows[0].ratio()->median, 2);
  EXPECT_EQ(rows[0].ratio()->low, 2);
  EXPECT_EQ(rows[0].ratio()->high, 2);
  EXPECT_EQ(rows[0].of_limit()->median, 1);
  EXPECT_EQ(rows[0].of_limit()->low, 0.625);
  EXPECT_EQ(rows[0].of_limit()->high, 1);
  EXPECT_EQ(rows[1].best_peer(), "");
  EXPECT_FALSE(rows[1].ratio());
  EXPECT_FALSE(rows[1].of_limit());
  // 2 (n - 1) / n = 1.5 times 1 MiB in 100 us
  EXPECT_DOUBLE_EQ(rows[1].bus_gbps(), 1.5 * 1.048576 * 10);
}

/// The same, but nobody can say how far the limit is.
std::vector<Row> unsteady_example() {
  std::vector<Row> rows = example();
  rows[0].limit = {{0.03125, 8, 0.5}};
  return rows;
}

TEST(CompareReport, TheTableNamesTheBestPeerAndTheRatio) {
  EXPECT_EQ(
      format_table(example(), {"mpich", "gloo"}, false),
      "all_reduce, 4 ranks, float32, Tutti's buffers from malloc; times in us, busbw in GB/s\n"
      "size       tutti  busbw       mpich       gloo       limit             ratio        of "
      "limit\n"
      "   8  0.500 ±75%   0.02  1.000 ±75%  200.0 ±0%  0.500 ±94%  2.00 (2.00-2.00)  100% "
      "(62-100%)\n"
      "  1M   100.0 ±0%  15.73           -          -           -                 -              "
      " -\n");
  EXPECT_CONTAINS(format_table(example(), {"mpich"}, true), " 1.000 (1.000-2.500) ");
}

TEST(CompareReport, WhatIsNotSteadyIsNotQuoted) {
  const auto rows = unsteady_example();
  EXPECT_CONTAINS(format_table(rows, {"mpich"}, false), " unsteady (53-250%)\n");
  // Not ±797%, which is no figure.
  EXPECT_CONTAINS(format_table(rows, {"mpich"}, false), "  0.500 (0.266-4.250)  ");
  const auto row = nlohmann::json::parse(format_json(rows, {}))["rows"][0];
  EXPECT_TRUE(row["of_limit"].is_null()) << row;
  EXPECT_EQ(row["ratio"], 2);
  EXPECT_EQ(row["quartiles"]["of_limit"], (nlohmann::json{0.53125, 2.5}));
}

TEST(CompareReport, TheJsonHasEveryTimeAndFigure) {
  const Conditions run{"a CPU", 2, 3, 25, true, {"gloo is left out", "no file /\xff"}};
  const auto json = nlohmann::json::parse(format_json(example(), run));
  EXPECT_EQ(json["notes"][1], "no file /\xEF\xBF\xBD");  // JSON is UTF-8
  EXPECT_EQ(json["cpu"], "a CPU");
  EXPECT_EQ(json["rounds"], 3);
  EXPECT_EQ(json["slice_ms"], 25);
  EXPECT_EQ(json["notes"][0], "gloo is left out");
  const auto& row = json["rows"][0];
  EXPECT_EQ(row["collective"], "all_reduce");
  EXPECT_EQ(row["type"], "float32");
  EXPECT_EQ(row["bytes"], 8);
  EXPECT_EQ(row["ranks"], 4);
  EXPECT_EQ(row["memory"], "malloc");
  EXPECT_EQ(row["tutti_us"], 0.5);
  EXPECT_EQ(row["peers"], (nlohmann::json{{"gloo", 200.0}, {"mpich", 1.0}, {"openmpi", 2.0}}));
  EXPECT_EQ(row["limit_us"], 0.5);
  EXPECT_EQ(row["ratio"], 2.0);
  EXPECT_EQ(row["of_limit"], 1.0);
  EXPECT_EQ(row["quartiles"], (nlohmann::json{{"tutti", {0.5, 1.25}},
                                              {"gloo", {200.0, 200.0}},
                                              {"mpich", {1.0, 2.5}},
                                              {"openmpi", {2.0, 2.5}},
                                              {"limit", {0.3125, 1.25}},
                                              {"ratio", {2.0, 2.0}},
                                              {"of_limit", {0.625, 1.0}}}));
  for (const char* missing : {"limit_us", "ratio", "of_limit"}) {
    EXPECT_TRUE(json["rows"][1][missing].is_null()) << missing;
  }
}

TEST(CompareReport, TheChartHasALineForEachProgram) {
  const std::string svg = format_svg(example(), {"A&B <CPU>", 2, 3, 25, true, {}});
  EXPECT_EQ(svg.rfind("<svg ", 0), 0u);
  EXPECT_CONTAINS(svg, "A&amp;B &lt;CPU>");
  EXPECT_CONTAINS(svg, "8 B: 2.00x mpich");
  EXPECT_CONTAINS(svg, ">all_reduce</text>");
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
  std::vector<Row> unsteady = example();
  unsteady[0].peers["mpich"] = {0.1, 2, 4};
  EXPECT_EQ(format_svg(unsteady, {}).find("<circle"), std::string::npos);
}

TEST(ComparePattern, SumsAreThoseOfTheInputs) {
  constexpr std::size_t kFirst = 500, kCount = 5000;  // over several blocks
  for (const int ranks : {2, 3, 64}) {
    const peers::Pattern pattern(DataType::float32, true, ranks);
    std::vector<float> sum(kCount), input(kCount);
    for (int rank = 0; rank < ranks; ++rank) {
      pattern.write(rank, 7, kFirst, kCount, reinterpret_cast<std::byte*>(input.data()));
      for (std::size_t i = 0; i < kCount; ++i) sum[i] += input[i];
    }
    const auto* const found = reinterpret_cast<const std::byte*>(sum.data());
    EXPECT_EQ(pattern.find_wrong(peers::Pattern::kSum, 7, kFirst, kCount, found), std::nullopt);
    sum[1234] = std::nextafter(sum[1234], 1e9f);
    EXPECT_EQ(pattern.find_wrong(peers::Pattern::kSum, 7, kFirst, kCount, found), 1234u);
  }
}

// Whichever two chunks are swapped, of whatever size, and wherever something else is put that the
// ranks have had: it shows.
TEST(ComparePattern, EveryRankPositionAndIterationIsAnother) {
  constexpr std::size_t kCount = 1 << 16;
  for (const DataType type :
       {DataType::float16, DataType::bfloat16, DataType::float32, DataType::float64}) {
    for (const bool reduces : {true, false}) {
      const peers::Pattern pattern(type, reduces, 3);
      const int kept = reduces ? peers::Pattern::kSum : 1;
      std::vector<std::byte> all(kCount * size_of(type));
      pattern.write(kept, 5, 0, kCount, all.data());
      EXPECT_EQ(pattern.find_wrong(kept, 5, 0, kCount, all.data()), std::nullopt);
      for (const int rank : {0, 1, 2, peers::Pattern::kSum}) {
        for (const std::uint64_t iteration : {4u, 5u, 6u}) {
          if (rank == kept && iteration == 5) continue;
          EXPECT_NE(pattern.find_wrong(rank, iteration, 0, 16, all.data()), std::nullopt)
              << name(type) << " rank " << rank << " iteration " << iteration;
        }
      }
      for (std::size_t chunk = 64 / size_of(type); chunk <= kCount / 2; chunk *= 2) {
        const std::size_t bytes = chunk * size_of(type);
        for (std::size_t other = chunk; other + chunk <= kCount; other *= 2) {
          std::byte* const at = all.data() + other * size_of(type);
          std::swap_ranges(all.data(), all.data() + bytes, at);
          EXPECT_NE(pattern.find_wrong(kept, 5, 0, kCount, all.data()), std::nullopt)
              << name(type) << ": chunks of " << chunk << " at 0 and " << other;
          std::swap_ranges(all.data(), all.data() + bytes, at);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tutti::compare
