// Pipeline schedules as text and as pictures.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "parallel/pipeline/draw.h"
#include "parallel/pipeline/generate.h"
#include "parallel/pipeline/text.h"
#include "parallel/pipeline/verify.h"
#include "tests/parallel/pipeline_cases.h"
#include "tests/support/contains.h"
#include "tests/support/thread_ranks.h"
#include "tests/support/xml.h"

namespace tutti::parallel::pipeline {
namespace {

TEST(PipelineText, WhatIsWrittenIsReadBack) {
  for (const Generator& g : generators()) {
    const Schedule s = generate(g, {4, 9, 0});
    EXPECT_EQ(schedule_from_text(to_text(s)), s) << g.name;
  }
  std::mt19937 random(3);
  for (int i = 0; i < 100; ++i) {
    const Schedule s = test::random_schedule(random, 1 + i % 4);
    EXPECT_EQ(schedule_from_text(to_text(s)), s);
  }
}

TEST(PipelineText, LooksAsItIsDescribed) {
  EXPECT_EQ(to_text(generate(*find_generator("1f1b"), {2, 3, 0})),
            "tutti schedule 1\n"
            "1f1b  ranks 2  stages 2  micro-batches 3  buffers 2  live 2\n"
            "rank 0  stages 0\n  0F0 0F1 0B0 0F2 0B1 0B2\n"
            "rank 1  stages 1\n  1F0 1B0 1F1 1B1 1F2 1B2\n");
}

TEST(PipelineText, ErrorsSayWhereAndWhat) {
  const std::string head =
      "tutti schedule 1\nx ranks 2 stages 3 micro-batches 2 buffers 1 live 1\n";
  const auto error = [](const std::string& text) {
    const Error e = test::error_of([&] { schedule_from_text(text); });
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
    return std::string(e.what());
  };
  EXPECT_EQ(error(""),
            "schedule text, line 1: expected 'tutti schedule 1', found the end of the line");
  EXPECT_EQ(error("tutti plan 1"), "schedule text, line 1: expected 'schedule', found 'plan 1'");
  EXPECT_EQ(error("tutti schedule 1\n"),
            "schedule text, line 2: expected a name and 'ranks', found the end of the line");
  EXPECT_EQ(error("tutti schedule 1\nx ranks 0"),
            "schedule text, line 2: expected the number of ranks (1 to 4096), found '0'");
  EXPECT_EQ(error("tutti schedule 1\nx ranks 2 stages 2 buffers 1"),
            "schedule text, line 2: expected 'micro-batches', found 'buffers 1'");
  EXPECT_EQ(error(head + "0F0"), "schedule text, line 3: expected 'rank 0', found '0F0'");
  EXPECT_EQ(error(head + "rank 1 stages 0"),
            "schedule text, line 3: expected rank 0 (ranks stand in order, each once), found '1 "
            "stages 0'");
  EXPECT_EQ(error(head + "rank 0 stages 3"),
            "schedule text, line 3: expected a stage (0 to 2), found '3'");
  EXPECT_EQ(error(head + "rank 0 stages 0\nrank 1 stages 2 0"),
            "schedule text, line 4: expected a stage that is not on rank 0, found '0'");
  EXPECT_EQ(error(head + "rank 0 stages 0 1 2"),
            "schedule text, line 4: expected 'rank 1', found the end of the text (the header says "
            "ranks 2)");
  EXPECT_EQ(error(head + "rank 0 stages 0 1\nrank 1 stages"),
            "schedule text, line 5: no rank has stage 2 (the header says stages 3)");
  const std::string rank = head + "rank 0 stages 0 1 2\n";
  EXPECT_EQ(
      error(rank + "# forwards\n0F0 F1"),
      "schedule text, line 5: expected an action: stage (0 to 2), F, B, I or W, micro-batch (0 "
      "to 1), found 'F1'");
  EXPECT_EQ(
      error(rank + "0X0"),
      "schedule text, line 4: expected an action: stage (0 to 2), F, B, I or W, micro-batch (0 "
      "to 1), found '0X0'");
  EXPECT_EQ(error(rank + "0F2"),
            "schedule text, line 4: expected a micro-batch (0 to 1), found '2'");
  EXPECT_EQ(error(rank + "3F0"), "schedule text, line 4: expected a stage (0 to 2), found '3F0'");
  EXPECT_EQ(error(rank + "0F99999999999999999999"),
            "schedule text, line 4: expected a micro-batch (0 to 1), found '99999999999999999999'");
}

TEST(PipelineText, GarbageDoesNoHarm) {
  std::mt19937 random(5);
  const std::string text = to_text(generate(*find_generator("zb-v"), {3, 4, 0}));
  for (int i = 0; i < 3000; ++i) {
    std::string spoilt = text;
    for (int k = 0; k <= i % 4; ++k) {
      const auto at = std::uniform_int_distribution<std::size_t>(0, spoilt.size() - 1)(random);
      if (i % 3 == 0) {
        spoilt.erase(at, 1 + i % 5);
      } else {
        spoilt[at] = i % 3 == 1 ? static_cast<char>(random() % 256) : "0F9BIW# \n"[random() % 9];
      }
    }
    try {
      verify(schedule_from_text(spoilt));
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << e.what();
    }
  }
}

TEST(PipelineText, NamesThatCannotBeReadBackAreNotWritten) {
  Schedule s = generate(*find_generator("gpipe"), {2, 2, 0});
  s.name = "two words";
  EXPECT_EQ(test::error_of([&] { to_text(s); }).code(), ErrorCode::invalid_argument);
}

TEST(PipelineDraw, ShowsEveryActionOnce) {
  for (const Generator& g : generators()) {
    SCOPED_TRACE(g.name);
    const Schedule s = generate(g, {4, 8, 0});
    const std::string svg = draw_svg(s, {1, 1, 1, 0.25});
    EXPECT_EQ(test::xml_error(svg), "");
    EXPECT_EQ(test::count(svg, "<g><title>rank "), verify(s).actions);
    EXPECT_EQ(svg.find("Deadlock"), svg.npos);
  }
  const std::string svg = draw_svg(generate(*find_generator("1f1b"), {4, 8, 0}), {1, 1, 1, 0});
  EXPECT_NE(
      svg.find("<title>rank 3, action 1 (3B0: backward of stage 3, micro-batch 0)\ntime 4 to 6"),
      svg.npos);
  EXPECT_NE(svg.find("makespan <tspan font-weight=\"bold\">33</tspan>"), svg.npos);
  EXPECT_NE(svg.find("bubble <tspan font-weight=\"bold\">9</tspan> (27 %)"), svg.npos);
  EXPECT_NE(svg.find(">4 activations</tspan> live"), svg.npos);
  EXPECT_NE(svg.find("<title>rank 0 waits from 4 to 10</title>"), svg.npos);
}

TEST(PipelineDraw, MarksADeadlockAndRefusesWhatHasNoOrder) {
  Schedule s = schedule_from_text(
      "tutti schedule 1\nmine ranks 2 stages 2 micro-batches 2 buffers 1 live 2\n"
      "rank 0 stages 0\n0F0 0B0 0F1 0B1\nrank 1 stages 1\n1F0 1F1 1B0 1B1\n");
  const std::string svg = draw_svg(s, {});
  EXPECT_EQ(test::xml_error(svg), "");
  EXPECT_NE(svg.find("Deadlock: 6 actions never start"), svg.npos);
  EXPECT_EQ(test::count(svg, "never starts</title>"), 2u);
  s.actions[0].pop_back();
  EXPECT_EQ(test::error_of([&] { draw_svg(s, {}); }).code(), ErrorCode::unproven_plan);
}

TEST(PipelineDraw, RefusesWhatIsTooLarge) {
  const Schedule s = generate(*find_generator("gpipe"), {64, 800, 0});
  const Error e = test::error_of([&] { draw_svg(s, {}); });
  EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
  EXPECT_NE(std::string(e.what()).find("102400 actions, too many for a picture"), std::string::npos)
      << e.what();
}

TEST(PipelineDraw, OddCostsAndNamesGiveWellFormedPictures) {
  Schedule s = generate(*find_generator("zb-h2"), {16, 64, 0});
  s.name = "<&\"";
  for (const Costs& costs :
       {Costs{0, 0, 0, 0}, Costs{1e-9, 1e6, 0, 0}, Costs{1e9, 1e9, 1e9, 1e9}}) {
    const std::string svg = draw_svg(s, costs);
    EXPECT_EQ(test::xml_error(svg), "");
    EXPECT_EQ(svg.find("nan"), svg.npos);
    EXPECT_EQ(svg.find("inf"), svg.npos);
  }
}

}  // namespace
}  // namespace tutti::parallel::pipeline
