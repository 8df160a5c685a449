// The verifier on plans that are none: every field wrong in turn, and 50,000 times at random.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

#include "collectives/verify.h"
#include "tests/collectives/verify_plans.h"

namespace tutti {
namespace {

// --- Form ----------------------------------------------------------------------------------------

void expect_malformed(const std::function<void(Plan&)>& spoil, const std::string& story) {
  Plan plan = parse(kRing3);
  spoil(plan);
  const Verdict v = verify(plan);
  EXPECT_FALSE(v.proved);
  EXPECT_NE(v.story.find(story), std::string::npos) << v.story << "\nexpected: " << story;
}

void for_headers(Plan& plan, const std::function<void(PlanHeader&)>& change) {
  change(plan.header);
  for (RankPlan& part : plan.ranks) change(part.header);
}

TEST(Verify, ChecksTheHeader) {
  const auto header = [](auto change, const std::string& story) {
    expect_malformed([&](Plan& p) { for_headers(p, change); }, story);
  };
  header([](PlanHeader& h) { h.collective = static_cast<Collective>(77); }, "is none that Tutti");
  header([](PlanHeader& h) { h.ranks = 0; }, "a plan for 0 ranks");
  header([](PlanHeader& h) { h.ranks = 4; }, "a plan for 4 ranks has parts for 3");
  header([](PlanHeader& h) { h.root = 3; }, "root 3 is no rank");
  header([](PlanHeader& h) { h.root = -1; }, "root -1 is no rank");
  header([](PlanHeader& h) { h.root = 1; }, "all_reduce has no root");
  header([](PlanHeader& h) { h.pieces = 0; }, "at least 1 piece");
  header([](PlanHeader& h) { h.slots = 0; }, "at least 1 slot");
  header([](PlanHeader& h) { h.widest = 0; }, "at least 1 chunk");
  header([](PlanHeader& h) { h.lanes = 0; }, "at least 1 lane");
  header([](PlanHeader& h) { h.lanes = 4'000'000'000; }, "has 1 lanes, but the header says");
  header([](PlanHeader& h) { h.pieces = 4'000'000'000; }, "too many to follow");
  expect_malformed([](Plan& p) { p.ranks[1].header.slots = 3; },
                   "rank 1's part has another header");
  expect_malformed([](Plan& p) { std::swap(p.ranks[1], p.ranks[2]); }, "says that it is rank 2's");
  expect_malformed([](Plan& p) { p.ranks[1].tmp_chunks = 4'294'967'295; }, "too many to follow");
  EXPECT_FALSE(verify(Plan{}).proved);
}

TEST(Verify, ChecksOperands) {
  // Rank 0's steps are: to(1) <- in[2]; to(1) <- from(2) + in[1]; ...
  const auto operand = [](std::size_t i, auto change, const std::string& story) {
    expect_malformed([&](Plan& p) { change(p.ranks[0].operands[i]); }, story);
  };
  operand(
      0, [](Operand& o) { o.rank = 3; }, "has a link with rank 3, which does not exist");
  operand(
      0, [](Operand& o) { o.rank = Operand::kSelf; }, "has a link with rank -1");
  operand(
      0, [](Operand& o) { o = in(0); }, "writes `in`");
  operand(
      1, [](Operand& o) { o.chunk = 3; }, "names in[3], but rank 0 has 3 chunk(s) there");
  operand(
      1, [](Operand& o) { o.chunk = 4'294'967'295; }, "names in[4294967295]");
  operand(
      1, [](Operand& o) { o.rank = 3; }, "names in[2]@3, but 3 is no other rank");
  operand(
      1, [](Operand& o) { o.rank = -2; }, "is no other rank");
  operand(
      1, [](Operand& o) { o.rank = 0; }, "names in[2]@0, but 0 is no other rank");
  operand(
      1, [](Operand& o) { o.space = static_cast<Space>(9); }, "in no space that there is");
  operand(
      1, [](Operand& o) { o.space = Space::tmp; }, "names tmp[2], but rank 0 has 0 chunk(s)");
  operand(
      4, [](Operand& o) { o = from(2, 0); }, "receives from the same link twice");
}

TEST(Verify, ChecksSteps) {
  const auto step = [](auto change, const std::string& story) {
    expect_malformed([&](Plan& p) { change(p.ranks[0].lanes[0][1]); }, story);
  };
  step([](Step& s) { s.first_operand = 4'294'967'295; }, "operands from 4294967295 on");
  step([](Step& s) { s.sources = 65'535; }, "has 65536 operands");
  step([](Step& s) { s.sources = s.destinations = 0; }, "has no operand");
  step([](Step& s) { s.destinations = 0; }, "has no destination");
  step([](Step& s) { s.sources = 0; }, "has no source");
  step([](Step& s) { s.count = 0; }, "a signal and a wait have links alone");
  step([](Step& s) { s.count = 4'294'967'295; }, "but there are only 3");
  step([](Step& s) { s.shape_chunk = 3; }, "takes its size from in[3]");
  step([](Step& s) { s.shape_space = Space::tmp; }, "takes its size from neither in nor out");
  expect_malformed([](Plan& p) { p.ranks[0].lanes[0].resize(9, p.ranks[0].lanes[0][0]); },
                   "each for one step");
}

TEST(Verify, ChecksOverlap) {
  const std::string text = R"(broadcast alone  ranks 1  root 0  pieces 3  slots 1  lanes 1
rank 0  tmp 4
  lane 0
    tmp[0:2], tmp[2:4] <- in[0:2]
    out[0:2] <- tmp[0:2]
    out[2] <- in[2]
)";
  expect_proved(text, true);
  expect_refuted(with(text, "tmp[0:2], tmp[2:4]", "tmp[0:2], tmp[1:3]"),
                 {"has a destination that overlaps another operand"});
  expect_refuted(with(text, "tmp[0:2], tmp[2:4]", "tmp[0:2], tmp[0:2]"),
                 {"has the same destination twice"});
  expect_refuted(with(text, "    out[0:2] <- tmp[0:2]\n",
                      "    out[0:2] <- tmp[0:2]\n    tmp[1:3] <- tmp[0:2] as out[0:2]\n"),
                 {"has a destination that overlaps another operand"});
}

// Steps that differ by a shift alone are checked as one; what is wrong with one of them is still
// its own.
TEST(Verify, ChecksEveryStepOfARun) {
  const auto copies = [](int n, const std::string& last) {
    std::string text =
        "broadcast alone  ranks 1  root 0  pieces 6  slots 1  lanes 1\nrank 0\n"
        "  lane 0\n";
    for (int c = 0; c < n; ++c) {
      text += fmt::format("    out[{0}] <- in[{0}]\n", c);
    }
    return text + last;
  };
  expect_proved(copies(6, ""));
  expect_proved(copies(6, ""), true);
  expect_refuted(copies(8, ""), {"rank 0 lane 0 step 6 (out[6] <- in[6])", "but there are only 6"});
  expect_refuted(copies(5, ""), {"out[5] of rank 0 is never written"});
  expect_refuted(copies(5, "    out[5] <- in[4] as out[5]\n"), {"step 5", "can have another size"});
  expect_refuted(copies(5, "    out[4] <- in[4]\n"), {"out[5] of rank 0 is never written"});
  // Chunks go down as well as up, and past nothing.
  const auto down = [](int last) {
    std::string text =
        "broadcast alone  ranks 1  root 0  pieces 6  slots 1  lanes 1\nrank 0\n"
        "  lane 0\n";
    for (int c = 5; c >= last; --c) text += fmt::format("    out[{0}] <- in[{0}]\n", c);
    return text;
  };
  expect_proved(down(0));
  expect_refuted(down(1), {"out[0] of rank 0 is never written"});
}

// Blocks of a v-collective are of any size, so steps that move from block to block are not alike.
TEST(Verify, ChecksSizesAlongARun) {
  expect_refuted(R"(all_gather_v alone  ranks 3  pieces 1  slots 3  lanes 1
rank 0
  lane 0
    out[0] <- in[0]
    out[1] <- in[0]@1 as out[0]
rank 1
rank 2
)",
                 {"step 1", "can have another size"});
  expect_refuted(R"(all_to_all_v swapped  ranks 2  pieces 1  slots 2  lanes 1
rank 0
  lane 0
    to(1) <- in[0]
    to(1) <- in[1]
    out[0] <- from(1)
    out[1] <- from(1)
rank 1
  lane 0
    to(0) <- in[0]
    to(0) <- in[1]
    out[0] <- from(0)
    out[1] <- from(0)
)",
                 {"as if it were as large as out[0]"});
}

// A remote tmp can be named before its owner's part is read.
TEST(Verify, KnowsTmpOfLaterRanks) {
  const std::string text = R"(broadcast remote  ranks 2  root 0  pieces 1  slots 1  lanes 1
rank 0
  lane 0
    out[0] <- in[0]
    () <- from(1)
    tmp[1]@1 <- in[0]
    to(1) <- ()
    () <- from(1)
rank 1  tmp 2
  lane 0
    to(0) <- ()
    () <- from(0)
    out[0] <- tmp[1]
    to(0) <- ()
)";
  expect_proved(text);
  expect_refuted(with(text, "tmp 2", "tmp 1"), {"names tmp[1]@1, but rank 1 has 1 chunk(s) there"});
}

TEST(Verify, AsksForEachPartOnce) {
  const Plan plan = parse(kRing3);
  std::vector<int> asked(3);
  const PlanParts parts{plan.header, [&](int rank) {
                          ++asked[static_cast<std::size_t>(rank)];
                          return plan.ranks[static_cast<std::size_t>(rank)];
                        }};
  const Verdict v = verify(parts);
  EXPECT_TRUE(v.proved) << v.story;
  EXPECT_EQ(v.steps, 15U);
  EXPECT_EQ(asked, (std::vector<int>{1, 1, 1}));
}

TEST(Verify, DemandsOneLaneAtEachEndOfALink) {
  expect_refuted(R"(send_recv bad  ranks 1  pieces 1  slots 1  lanes 2
rank 0
  lane 0
    to(0) <- in[0]
    out[0] <- from(0)
  lane 1
    to(0).0 <- ()
)",
                 {"rank 0 lane 1 step 0",
                  "sends on the link from rank 0 to rank 0 on channel 0, as "
                  "lane 0 does"});
}

// --- Garbage -------------------------------------------------------------------------------------

/// Overwrites one number somewhere in the plan.
void spoil(Plan& plan, std::mt19937& random) {
  const auto any = [&](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
  const auto number = [&]() -> std::uint32_t {
    const std::uint32_t interesting[] = {0, 1, 2, 3, 255, 65'535, 0x7fffffff, 0xffffffff};
    return any(2) == 0 ? any(5) : interesting[any(8)];
  };
  RankPlan& part = plan.ranks[any(static_cast<std::uint32_t>(plan.ranks.size()))];
  auto& lane = part.lanes[any(static_cast<std::uint32_t>(part.lanes.size()))];
  const std::uint32_t field = any(16);
  if (field < 6 && !lane.empty()) {
    Step& s = lane[any(static_cast<std::uint32_t>(lane.size()))];
    if (field == 0) s.first_operand = number();
    if (field == 1) s.destinations = static_cast<std::uint16_t>(number());
    if (field == 2) s.sources = static_cast<std::uint16_t>(number());
    if (field == 3) s.count = number();
    if (field == 4) s.shape_chunk = number();
    if (field == 5) s.shape_space = static_cast<Space>(number());
  } else if (field < 13 && !part.operands.empty()) {
    Operand& o = part.operands[any(static_cast<std::uint32_t>(part.operands.size()))];
    if (field < 8) o.space = static_cast<Space>(any(5));
    if (field == 8) o.channel = static_cast<std::uint8_t>(any(4));
    if (field == 9 || field == 10) o.rank = static_cast<std::int32_t>(number());
    if (field > 10) o.chunk = number();
  } else if (field == 13) {
    part.tmp_chunks = number();
  } else {
    const std::uint32_t what = any(6);
    const std::uint32_t value = number();
    for_headers(plan, [&](PlanHeader& h) {
      if (what == 0) h.collective = static_cast<Collective>(value % 15);
      if (what == 1) h.root = static_cast<int>(value);
      if (what == 2) h.pieces = value;
      if (what == 3) h.slots = value;
      if (what == 4) h.lanes = value;
      if (what == 5) h.widest = value;
    });
  }
}

TEST(Verify, SurvivesGarbage) {
  std::mt19937 random(20240229);
  const std::vector<Plan> originals = {parse(kRing2), parse(kRing3), parse(kTwoShot2),
                                       parse(kHandOver), parse(kExchange)};
  int refuted = 0;
  constexpr int kPlans = 50'000;
  for (int i = 0; i < kPlans; ++i) {
    Plan plan = originals[static_cast<std::size_t>(i) % originals.size()];
    for (std::uint32_t spots = 1 + random() % 3; spots > 0; --spots) spoil(plan, random);
    const Verdict v = verify(plan, {.in_place = random() % 2 == 0});
    EXPECT_EQ(v.proved, v.story.empty());
    if (!v.proved) ++refuted;
  }
  // Some numbers are not used, and a few spots are overwritten with what stood there.
  EXPECT_GT(refuted, kPlans / 2);
}

}  // namespace
}  // namespace tutti
