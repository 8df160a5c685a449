// Drawings of plans: the times that they show, and that they are well-formed SVG in which every
// step and message appears once.
#include "collectives/draw/draw.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/draw/layout.h"
#include "collectives/draw/schedule.h"
#include "collectives/text/text.h"
#include "core/error.h"
#include "tests/support/contains.h"
#include "tests/support/xml.h"

namespace tutti {
namespace {

using test::count;
using test::xml_error;

/// In a ring of `n`, every rank sends its chunk on n - 1 times. Not a collective: a shape.
Plan ring(int n, int slots) {
  std::string text = fmt::format(
      "tutti plan 1\nall_reduce ring  ranks {0}  pieces {0}  slots {1}  lanes 1\n", n, slots);
  for (int r = 0; r < n; ++r) {
    const int next = (r + 1) % n, previous = (r + n - 1) % n;
    text += fmt::format("rank {}\nlane 0\nto({}) <- in[{}]\n", r, next, r);
    for (int k = 1; k < n - 1; ++k) {
      text += fmt::format("to({}) <- from({}) + in[{}]\n", next, previous, (r - k + n) % n);
    }
    text += fmt::format("out[{}] <= from({}) + in[0]\n", next, previous);
  }
  return plan_from_text(text);
}

TEST(DrawSchedule, OfARing) {
  const drawing::Schedule s = drawing::make_schedule(ring(5, 2));
  EXPECT_EQ(s.steps, 25u);
  EXPECT_EQ(s.never_start, 0u);
  EXPECT_EQ(s.messages.size(), 20u);
  // Five steps of one unit, four messages of half a unit; all ranks alike.
  EXPECT_EQ(s.end, 7);
  for (const auto& rank : s.times) {
    for (std::size_t k = 0; k < 5; ++k) {
      EXPECT_EQ(rank[0][k].start, 1.5 * static_cast<double>(k));
      EXPECT_EQ(rank[0][k].end, 1.5 * static_cast<double>(k) + 1);
    }
  }
}

TEST(DrawSchedule, ShowsADeadlockForWantOfSlots) {
  const drawing::Schedule s = drawing::make_schedule(ring(5, 1));
  EXPECT_EQ(s.never_start, 20u);
  EXPECT_EQ(s.end, 1);
}

TEST(DrawSchedule, WaitsForLanesMessagesAndSlots) {
  const drawing::Schedule s = drawing::make_schedule(plan_from_text(
      R"(tutti plan 1
all_reduce x ranks 2 pieces 1 slots 1 lanes 2
rank 0
  lane 0
    to(1) <- in[0]
    to(1) <- in[0]          # starts when rank 1 has read the first
    to(0).9 <- ()           # tells lane 1, in half a unit
  lane 1
    () <- from(0).9
rank 1
  lane 0
    tmp[0] <- in[0]
    tmp[0] <- in[0]
    out[0], tmp[0] <- from(0)
    out[0] <- from(0)
)"));
  EXPECT_EQ(s.times[0][0][1].start, 3);
  EXPECT_EQ(s.times[1][0][2].start, 2);
  EXPECT_EQ(s.times[1][0][3].start, 4.5);
  EXPECT_EQ(s.times[0][0][2].end, 4.5);
  EXPECT_EQ(s.times[0][1][0].start, 5);
  EXPECT_EQ(s.end, 5.5);
}

TEST(Draw, ShowsEveryStepAndMessageOnce) {
  const std::string svg = draw_svg(ring(8, 2));
  EXPECT_EQ(xml_error(svg), "");
  EXPECT_EQ(count(svg, "<title>step "), 64u);
  EXPECT_EQ(count(svg, "class=\"m\""), 56u + 1);  // and one in the legend
  EXPECT_EQ(count(svg, ">rank "), 8u);
  EXPECT_NE(svg.find("step 3/0/1, time 1.5 to 2.5\nto(4) &lt;- from(2) + in[2]</title>"), svg.npos);
  EXPECT_NE(svg.find("all_reduce &#183; ring &#183; 8 ranks"), svg.npos);
  EXPECT_EQ(svg.find("Deadlock"), svg.npos);
}

TEST(Draw, MarksADeadlock) {
  const std::string svg = draw_svg(ring(8, 1));
  EXPECT_EQ(xml_error(svg), "");
  EXPECT_NE(svg.find("Deadlock: 56 steps never start"), svg.npos);
  EXPECT_EQ(count(svg, " never starts\n"), 8u);
}

TEST(Draw, ShowsAccessesToOtherRanksMemory) {
  const std::string svg = draw_svg(plan_from_text(
      "tutti plan 1\nbroadcast x ranks 3 root 1 pieces 1 slots 1 lanes 1\nrank 0\nrank 1\nlane 0\n"
      "out[0], out[0]@0, out[0]@2 <- in[0]\nrank 2\n"));
  EXPECT_EQ(xml_error(svg), "");
  EXPECT_EQ(count(svg, "class=\"w\""), 2u + 1);
  EXPECT_NE(svg.find("rank 1 (root)"), svg.npos);
}

TEST(Draw, LargePlansAreCompact) {
  const std::string large = draw_svg(ring(64, 2));
  EXPECT_EQ(xml_error(large), "");
  EXPECT_EQ(count(large, "<title>"), 0u);
  EXPECT_NE(large.find("drawn compactly: labels, 4032 arrows and tooltips"), large.npos);
  EXPECT_LT(large.size(), 400'000u);

  // Few enough messages to show.
  std::string text = "tutti plan 1\nbroadcast x ranks 40 root 0 pieces 1 slots 1 lanes 1\nrank 0\n";
  text += "lane 0\nout[0]";
  for (int r = 1; r < 40; ++r) text += fmt::format(", to({})", r);
  text += " <- in[0]\n";
  for (int r = 1; r < 40; ++r) text += fmt::format("rank {}\nlane 0\nout[0] <- from(0)\n", r);
  const std::string flat = draw_svg(plan_from_text(text));
  EXPECT_EQ(xml_error(flat), "");
  EXPECT_EQ(count(flat, "class=\"m\""), 39u + 1);
  EXPECT_NE(flat.find("drawn compactly: labels and tooltips"), flat.npos);
}

TEST(Draw, EscapesNames) {
  Plan plan;
  plan.header.algorithm = "<&\"\x01>";
  EXPECT_EQ(xml_error(draw_svg(plan)), "");
}

TEST(Draw, ChunksKeepTheirNumbersOnTheirWay) {
  const Plan plan = plan_from_text(
      "tutti plan 1\nall_gather x ranks 3 pieces 2 slots 1 lanes 1\nrank 0\nrank 1 tmp 2\n"
      "lane 0\nto(0) <- in[1]\nout[4:6] <- from(0)\n() <- from(0)\nto(0) <- tmp[0:2] as out[0:2]\n"
      "to(2) <- from(0) as out[0]\nrank 2\n");
  const RankPlan& rank = plan.ranks[1];
  EXPECT_EQ(drawing::step_label(rank, rank.lanes[0][0]), "3");
  EXPECT_EQ(drawing::step_label(rank, rank.lanes[0][1]), "4-5");
  EXPECT_EQ(drawing::step_label(rank, rank.lanes[0][2]), "wait");
  EXPECT_EQ(drawing::step_label(rank, rank.lanes[0][3]), "tmp 0-1");
  EXPECT_EQ(drawing::step_label(rank, rank.lanes[0][4]), "");
}

TEST(Draw, EveryAlgorithm) {
  int pictures = 0;
  for (const Algorithm& a : algorithms()) {
    for (int n = 1; n <= 9; ++n) {
      SCOPED_TRACE(fmt::format("{} {} {} ranks", name(a.collective), a.name, n));
      Plan plan;
      try {
        plan = generate_plan(a, {a.collective, n, is_rooted(a.collective) ? n - 1 : 0, 1, 0});
      } catch (const Error& e) {
        ASSERT_EQ(e.code(), ErrorCode::invalid_argument);  // not for this number of ranks
        continue;
      }
      std::size_t steps = 0;
      for (const RankPlan& rank : plan.ranks) {
        for (const auto& lane : rank.lanes) steps += lane.size();
      }
      const std::string svg = draw_svg(plan);
      EXPECT_EQ(xml_error(svg), "");
      EXPECT_EQ(count(svg, "<title>step "), steps);
      EXPECT_EQ(svg.find("Deadlock"), svg.npos);
      ++pictures;
    }
  }
  EXPECT_GT(pictures, 100);
}

}  // namespace
}  // namespace tutti
