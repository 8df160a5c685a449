// Compressed plans: those that ship are proved, and each way to compress something not at all, once
// too often, with another scale or in another order is refused with a story.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "collectives/algorithms.h"
#include "collectives/model/choose.h"
#include "collectives/text/write.h"
#include "tests/collectives/verify_plans.h"

namespace tutti {
namespace {

const std::string kTwo = R"(all_reduce by_hand  ranks 2  pieces 2  slots 2  lanes 1  compressed
rank 0  tmp 1
  lane 0
    to(1) <- in[1]
    tmp[0] <- in[0]
    out[0], to(1) <= tmp[0] + from(1)
    out[1] <- from(1)
rank 1  tmp 1
  lane 0
    to(0) <- in[0]
    tmp[0] <- in[1]
    out[1], to(0) <= from(0) + tmp[0]
    out[0] <- from(0)
)";

const std::string kScatter =
    R"(reduce_scatter by_hand  ranks 2  pieces 1  slots 1  lanes 1  compressed
rank 0  tmp 1
  lane 0
    to(1) <- in[1]
    tmp[0] <- in[0]
    out[0] <= tmp[0] + from(1)
rank 1  tmp 1
  lane 0
    to(0) <- in[0]
    tmp[0] <- in[1]
    out[0] <= from(0) + tmp[0]
)";

TEST(CompressedPlans, OneByHandIsProved) {
  for (const bool in_place : {false, true}) expect_proved(kTwo, in_place);
  EXPECT_EQ(to_text(parse(kTwo)), "tutti plan 1\n" + kTwo);
  EXPECT_EQ(check(kTwo).traffic, std::vector<Traffic>(2, Traffic{2, 2}));
  // Without the word it is an ordinary plan, and right.
  const std::string ordinary = with(kTwo, "  compressed", "");
  EXPECT_TRUE(verify(parse(ordinary), {.scales = false}).proved);
}

TEST(CompressedPlans, AScatterByHandIsProved) {
  for (const bool in_place : {false, true}) expect_proved(kScatter, in_place);
  EXPECT_EQ(to_text(parse(kScatter)), "tutti plan 1\n" + kScatter);
  EXPECT_EQ(check(kScatter).traffic, std::vector<Traffic>(2, Traffic{1, 1}));
  EXPECT_EQ(check(kScatter).roundings, 1U);
}

void expect_ships(Collective collective, const char* name, int chunks_for_each) {
  const Algorithm* const a = find_algorithm(collective, name);
  ASSERT_NE(a, nullptr);
  EXPECT_TRUE(a->compressed);
  for (int n = 1; n <= 17; ++n) {
    for (const bool in_place : {false, true}) {
      for (const bool scales : {false, true}) {
        const PlanParts plan = plan_parts(*a, {collective, n});
        EXPECT_EQ(plan.header.format, Format::compressed);
        const Verdict v = verify(plan, {.in_place = in_place, .scales = scales});
        ASSERT_TRUE(v.proved) << n << ": " << v.story;
        const auto moved = static_cast<std::uint64_t>(chunks_for_each * (n - 1));
        for (const Traffic& t : v.traffic) EXPECT_EQ(t, (Traffic{moved, moved}));
      }
    }
  }
}

TEST(CompressedPlans, ThoseThatShipAreProved) {
  expect_ships(Collective::all_reduce, "two_shot_compressed", 2);  // of n chunks
  expect_ships(Collective::reduce_scatter, "direct_compressed", 1);
}

TEST(CompressedPlans, ItRunsOnlyWhereACallAsksForIt) {
  Platform platform;
  platform.ranks = 4;
  platform.links = {8, 1 << 20};
  Chooser chooser(platform);
  for (const Collective collective : {Collective::all_reduce, Collective::reduce_scatter}) {
    for (const std::size_t bytes : {8U, 1U << 24}) {
      Workload w{collective, bytes, DataType::bfloat16};
      for (const Prediction& p : chooser.candidates(w)) EXPECT_FALSE(p.algorithm->compressed);
      EXPECT_FALSE(chooser.choose(w).compressed);
      w.compressed = true;
      EXPECT_EQ(chooser.candidates(w).size(), 1U);
      EXPECT_TRUE(chooser.choose(w).compressed);
    }
  }
}

const char* const kStory = "in a compressed plan it should be compress(compress(in@0)";

const char* const kScatterStory =
    "in a compressed plan it should be compress(in@0) + compress(in@1) + ...:";

TEST(CompressedPlans, AnInputThatIsNotCompressedIsRefused) {
  for (const bool in_place : {false, true}) {
    expect_refuted(
        with(with(kTwo, "    tmp[0] <- in[0]\n", ""), "<= tmp[0] + from(1)", "<= in[0] + from(1)"),
        {kStory, "compress(in[0]@0 + compress(in[0]@1))"}, in_place);
    expect_refuted(with(with(kScatter, "    tmp[0] <- in[0]\n", ""), "<= tmp[0] + from(1)",
                        "<= in[0] + from(1)"),
                   {kScatterStory, "is in[0]@0 + compress(in[0]@1)"}, in_place);
  }
}

TEST(CompressedPlans, ASumThatIsNotCompressedIsRefused) {
  // The owner keeps the sum in float32's digits; the other gets it in 8 bits.
  expect_refuted(with(kTwo, "    out[0], to(1) <= tmp[0] + from(1)\n",
                      "    out[0] <= tmp[0] + from(1)\n    to(1) <- out[0]\n"),
                 {"out[0] of rank 0", kStory});
}

TEST(CompressedPlans, ASumThatStaysIsNotCompressed) {
  expect_refuted(with(kScatter, "    out[0] <= tmp[0] + from(1)\n",
                      "    tmp[0] <= tmp[0] + from(1) as out[0]\n    out[0] <- tmp[0]\n"),
                 {"out[0] of rank 0 is compress(compress(in[0]@0) + compress(in[0]@1))",
                  kScatterStory, "and that not compressed"});
}

TEST(CompressedPlans, OneThatIsCompressedAnewIsRefused) {
  // What has been in `out` has been rounded to its type: its scale can be another one.
  expect_refuted(
      with(with(kTwo, "    tmp[0] <- in[0]\n", "    out[0] <- in[0]\n    tmp[0] <- out[0]\n"),
           "ranks 2", "ranks 2"),
      {kStory});
  const std::string anew = with(kTwo, "    out[0], to(1) <= tmp[0] + from(1)\n",
                                "    tmp[0] <= tmp[0] + from(1) as out[0]\n    out[0] <- tmp[0]\n"
                                "    to(1) <- out[0]\n");
  expect_refuted(anew, {"compress(compress("});
  // From tmp it goes on bit for bit.
  expect_proved(with(anew, "to(1) <- out[0]", "to(1) <- tmp[0] as out[0]"));
}

TEST(CompressedPlans, AnotherOrderIsRefused) {
  expect_refuted(with(kTwo, "tmp[0] + from(1)", "from(1) + tmp[0]"),
                 {kStory, "compress(compress(in[0]@1) + compress(in[0]@0))"});
  expect_refuted(with(kScatter, "tmp[0] + from(1)", "from(1) + tmp[0]"),
                 {kScatterStory, "is compress(in[0]@1) + compress(in[0]@0)"});
}

TEST(CompressedPlans, AnInputThatWasRoundedInBetweenIsRefused) {
  expect_refuted(
      with(kScatter, "    tmp[0] <- in[0]\n", "    out[0] <- in[0]\n    tmp[0] <- out[0]\n"),
      {kScatterStory});
}

// Partial sums of the ring travel, so each is compressed anew.
TEST(CompressedPlans, ScattersOfPartialSumsAreRefused) {
  for (const int ranks : {3, 4}) {
    Plan plan = generate_plan(*find_algorithm(Collective::reduce_scatter, "ring"),
                              {Collective::reduce_scatter, ranks});
    plan.header.format = Format::compressed;
    for (RankPlan& part : plan.ranks) part.header.format = Format::compressed;
    const Verdict v = verify(plan);
    EXPECT_FALSE(v.proved);
    EXPECT_NE(v.story.find(kScatterStory), std::string::npos) << v.story;
  }
}

TEST(CompressedPlans, PartialSumsAreRefused) {
  expect_refuted(with(kRing3, "lanes 1", "lanes 1  compressed"), {kStory});
}

TEST(CompressedPlans, OtherCollectivesAndWindowsAreRefused) {
  expect_refuted(R"(broadcast direct  ranks 2  root 0  pieces 1  slots 1  lanes 1  compressed
rank 0
  lane 0
    out[0], to(1) <- in[0]
rank 1
  lane 0
    out[0] <- from(0)
)",
                 {"a compressed plan is for all_reduce or reduce_scatter, not for broadcast"});
  for (const char* const name : {"two_shot_window", "one_shot_window"}) {
    Plan plan =
        generate_plan(*find_algorithm(Collective::all_reduce, name), {Collective::all_reduce, 3});
    plan.header.format = Format::compressed;
    for (RankPlan& part : plan.ranks) part.header.format = Format::compressed;
    const Verdict v = verify(plan);
    EXPECT_FALSE(v.proved);
    EXPECT_NE(v.story.find("addresses another rank's memory"), std::string::npos) << v.story;
  }
}

// No ordinary plan of the table becomes a right one by the word alone, where ranks add something
// up.
TEST(CompressedPlans, OrdinaryPlansAreNone) {
  for (const Algorithm& a : algorithms()) {
    if (!is_compressible(a.collective) || a.compressed) continue;
    Plan plan = generate_plan(a, {a.collective, 4});
    plan.header.format = Format::compressed;
    for (RankPlan& part : plan.ranks) part.header.format = Format::compressed;
    EXPECT_FALSE(verify(plan).proved) << a.name;
  }
}

}  // namespace
}  // namespace tutti
