// Plans as text: what is written is read back, what is wrong is named by its line, and no text,
// however hostile, does harm.
#include "collectives/text/text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/draw/draw.h"
#include "collectives/text/write.h"
#include "core/error.h"

namespace tutti {
namespace {

// As a person would write it: comments, uneven spacing, an empty lane, names left out.
constexpr std::string_view kHandWritten = R"(# two ranks
tutti plan 1

all_reduce  by.hand-1   ranks 2 pieces 4 slots 2 lanes 3 widest 5   # three lanes
rank 0  tmp 6
lane 0
to(1) <- in[0]
  to( 1 ).7<-in[ 1 ]
out[2:4], tmp[4:6]@1 <= in[2:4] + in[2:4]@1
tmp[0] <- from(1) as in[3]
tmp[0:2], to(1) <- from(1).1 + tmp[4:6] as out[2:4]
lane 2
to(1),to(0) <- ()
() <- from(1) + from(0)
to(1) <- from(1) as out[1:3]
rank 1
lane 1
  out[0]@1 <- in[0]@1
)";

constexpr std::string_view kAsWritten = R"(tutti plan 1
all_reduce by.hand-1  ranks 2  pieces 4  slots 2  lanes 3  widest 5
rank 0  tmp 6
  lane 0
    to(1) <- in[0]
    to(1).7 <- in[1]
    out[2:4], tmp[4:6]@1 <= in[2:4] + in[2:4]@1
    tmp[0] <- from(1) as in[3]
    tmp[0:2], to(1) <- from(1).1 + tmp[4:6] as out[2:4]
  lane 2
    to(1), to(0) <- ()
    () <- from(1) + from(0)
    to(1) <- from(1) as out[1:3]
rank 1
  lane 1
    out[0] <- in[0]
)";

void expect_equal(const Plan& a, const Plan& b) {
  EXPECT_EQ(a.header, b.header);
  ASSERT_EQ(a.ranks.size(), b.ranks.size());
  for (std::size_t r = 0; r < a.ranks.size(); ++r) {
    const RankPlan& x = a.ranks[r];
    const RankPlan& y = b.ranks[r];
    EXPECT_EQ(x.header, y.header);
    EXPECT_EQ(x.rank, y.rank);
    EXPECT_EQ(x.tmp_chunks, y.tmp_chunks);
    ASSERT_EQ(x.lanes.size(), y.lanes.size());
    for (std::size_t l = 0; l < x.lanes.size(); ++l) {
      ASSERT_EQ(x.lanes[l].size(), y.lanes[l].size());
      for (std::size_t s = 0; s < x.lanes[l].size(); ++s) {
        const Step& p = x.lanes[l][s];
        const Step& q = y.lanes[l][s];
        const auto same = [](std::span<const Operand> m, std::span<const Operand> n) {
          return std::equal(m.begin(), m.end(), n.begin(), n.end());
        };
        EXPECT_TRUE(same(x.destinations(p), y.destinations(q)) &&
                    same(x.sources(p), y.sources(q)) && p.count == q.count &&
                    p.shape_chunk == q.shape_chunk && p.shape_space == q.shape_space &&
                    p.completes == q.completes)
            << "step " << r << "/" << l << "/" << s << ": "
            << to_text(x, static_cast<std::uint32_t>(l), p) << " became "
            << to_text(y, static_cast<std::uint32_t>(l), q);
      }
    }
  }
}

TEST(Text, ReadsWhatAPersonWrites) {
  const Plan plan = plan_from_text(kHandWritten);
  EXPECT_EQ(plan.header, (PlanHeader{Collective::all_reduce, "by.hand-1", 2, 0, 4, 2, 3, 5}));
  const RankPlan& rank = plan.ranks.at(0);
  EXPECT_EQ(rank.tmp_chunks, 6u);
  ASSERT_EQ(rank.lanes.size(), 3u);
  ASSERT_EQ(rank.lanes[0].size(), 5u);
  EXPECT_TRUE(rank.lanes[1].empty());

  const Step& send = rank.lanes[0][1];
  EXPECT_EQ(rank.destinations(send)[0], to(1, 7));
  EXPECT_EQ(rank.sources(send)[0], in(1));
  EXPECT_EQ(send.count, 1u);

  const Step& reduce = rank.lanes[0][2];
  EXPECT_TRUE(reduce.completes);
  EXPECT_EQ(rank.destinations(reduce)[1], tmp(4).at(1));
  EXPECT_EQ(rank.sources(reduce)[1], in(2).at(1));
  EXPECT_EQ(reduce.count, 2u);
  EXPECT_EQ(reduce.shape_space, Space::out);
  EXPECT_EQ(reduce.shape_chunk, 2u);

  const Step& store = rank.lanes[0][3];
  EXPECT_EQ(store.shape_space, Space::in);
  EXPECT_EQ(store.shape_chunk, 3u);

  const Step& wait = rank.lanes[2][1];
  EXPECT_EQ(wait.destinations * 10 + wait.sources, 2);
  EXPECT_EQ(wait.count, 0u);
  EXPECT_EQ(rank.lanes[2][2].count, 2u);
}

TEST(Text, WritesOneForm) {
  const std::string text = to_text(plan_from_text(kHandWritten));
  EXPECT_EQ(text, kAsWritten);
  EXPECT_EQ(to_text(plan_from_text(text)), text);
}

TEST(Text, WritesOneRankAndOneStep) {
  const Plan plan = plan_from_text(kHandWritten);
  EXPECT_EQ(to_text(plan.ranks[1]),
            "tutti plan 1\nall_reduce by.hand-1  ranks 2  pieces 4  slots 2  lanes 3  widest 5\n"
            "rank 1\n  lane 1\n    out[0] <- in[0]\n");
  EXPECT_EQ(to_text(plan.ranks[0], 0, plan.ranks[0].lanes[0][3]), "tmp[0] <- from(1) as in[3]");
}

TEST(Text, WritesTheRootOfRootedCollectives) {
  const std::string text =
      "tutti plan 1\nbroadcast flat  ranks 2  root 1  pieces 1  slots 1  lanes 1\n"
      "rank 0\n  lane 0\n    out[0] <- from(1)\nrank 1\n  lane 0\n    out[0], to(0) <- in[0]\n";
  const Plan plan = plan_from_text(text);
  EXPECT_EQ(plan.header.root, 1);
  EXPECT_EQ(to_text(plan), text);
}

TEST(Text, KeepsWhateverABuilderMakes) {
  // Also what no sane generator would.
  Plan plan;
  plan.header = {Collective::all_gather, "odd", 2, 0, 3, 5, 2};
  for (int r = 0; r < 2; ++r) {
    RankPlanBuilder b(plan.header, r);
    b.reserve_tmp(7);
    const int peers[] = {1 - r, r};
    b.lane(1).signal(peers);
    b.lane(1).signal(peers, 0).shaped_as(in(2));
    b.lane(0).wait(peers).span(3);
    b.lane(0).step({}, {}).completes();
    b.lane(0).step({out(4), tmp(1)}, {});
    b.lane(1).step({tmp(1)}, {});
    b.lane(1).step({tmp(1)}, {}).span(2).shaped_as(out(1));
    b.lane(0).step({out(4)}, {in(0)}).span(0);
    b.lane(0).step({to(1 - r, 254)}, {from(1 - r)}).span(4).shaped_as(out(1));
    b.lane(0).step({to(1 - r)}, {tmp(6)}).shaped_as(out(0));
    b.lane(1).step({out(1), tmp(0)}, {in(0), from(r)}).shaped_as(in(2));
    b.lane(1).step({tmp(0xffff'ffff)}, {in(0xffff'fffe).at(1 - r)}).span(0xffff'ffff).completes();
    plan.ranks.push_back(b.finish());
  }
  const std::string text = to_text(plan);
  const Plan read = plan_from_text(text);
  expect_equal(plan, read);
  EXPECT_EQ(to_text(read), text);
}

TEST(Text, RoundTripsEveryAlgorithm) {
  int plans = 0;
  for (const Algorithm& a : algorithms()) {
    for (int n = 1; n <= 9; ++n) {
      for (const std::uint32_t lanes : {1u, 3u}) {
        if (lanes > 1 && !a.lanes) continue;
        SCOPED_TRACE(fmt::format("{} {} {} ranks {} lanes", name(a.collective), a.name, n, lanes));
        PlanRequest request{a.collective, n, is_rooted(a.collective) ? n / 2 : 0, lanes, 0};
        Plan plan;
        try {
          plan = generate_plan(a, request);
        } catch (const Error& e) {
          ASSERT_EQ(e.code(), ErrorCode::invalid_argument);  // not for this number of ranks
          continue;
        }
        const std::string text = to_text(plan);
        const Plan read = plan_from_text(text);
        expect_equal(plan, read);
        EXPECT_EQ(to_text(read), text);
        ++plans;
      }
    }
  }
  EXPECT_GT(plans, 100);
}

TEST(Text, IsFastEnoughForLargePlans) {
  const Algorithm* ring = find_algorithm(Collective::all_reduce, "ring");
  ASSERT_NE(ring, nullptr);
  const Plan plan = generate_plan(*ring, {Collective::all_reduce, 128, 0, 1, 0});
  const auto start = std::chrono::steady_clock::now();
  expect_equal(plan, plan_from_text(to_text(plan)));
  // 0.05 s where nothing else runs; the bound only catches what grows with the square.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(Text, RefusesToWriteANameThatItCouldNotRead) {
  Plan plan;
  for (const std::string name : {"", "two words", "a#b", "new\nline", "\xc3\xa9"}) {
    plan.header.algorithm = name;
    EXPECT_THROW(to_text(plan), Error) << name;
  }
  plan.header.algorithm = std::string(64, 'x');
  EXPECT_NO_THROW(to_text(plan));
  plan.header.algorithm += 'x';
  EXPECT_THROW(to_text(plan), Error);
}

// --- Errors --------------------------------------------------------------------------------------

constexpr std::string_view kHeader =
    "tutti plan 1\nall_reduce x ranks 2 pieces 2 slots 1 lanes 2\n";

std::string error_of(std::string_view text) {
  try {
    plan_from_text(text);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    return e.what();
  }
  return "no error";
}

/// The error of a plan whose rank 0 has this step, on line 5.
std::string step_error(std::string_view step) {
  return error_of(fmt::format("{}rank 0 tmp 1\nlane 1\n{}\nrank 1\n", kHeader, step));
}

TEST(TextErrors, NameTheLineWhatIsExpectedAndWhatIsFound) {
  const auto line5 = [](std::string_view what) {
    return fmt::format("plan text, line 5: {}", what);
  };
  EXPECT_EQ(step_error("out[0] <- in[0]"), "no error");
  EXPECT_EQ(step_error("out[x] <- in[0]"),
            line5("expected a chunk (0 to 4294967295), found 'x] <- in[0]'"));
  EXPECT_EQ(step_error("out[0 <- in[0]"), line5("expected ']', found '<- in[0]'"));
  EXPECT_EQ(step_error("out[0] in[0]"), line5("expected ',', '<-' or '<=', found 'in[0]'"));
  EXPECT_EQ(step_error("out[0] <-"),
            line5("expected a source: in[, out[, tmp[ or from(, found the end of the line"));
  EXPECT_EQ(step_error("out[0] <- to(1)"),
            line5("expected a source: in[, out[, tmp[ or from(, found 'to(1)'"));
  EXPECT_EQ(step_error("from(1) <- in[0]"),
            line5("expected a destination: in[, out[, tmp[ or to(, found 'from(1) <- in[0]'"));
  EXPECT_EQ(step_error("to(2) <- in[0]"), line5("expected a rank (0 to 1), found '2) <- in[0]'"));
  EXPECT_EQ(step_error("to(1).255 <- in[0]"),
            line5("expected a channel (0 to 254), found '255 <- in[0]'"));
  EXPECT_EQ(step_error("out[0]@2 <- in[0]"), line5("expected a rank (0 to 1), found '2 <- in[0]'"));
  EXPECT_EQ(step_error("out[3:2] <- in[0]"),
            line5("expected the chunk past the end (3 to 4294967298), found '2] <- in[0]'"));
  EXPECT_EQ(step_error("out[0:2] <- in[0]"),
            line5("expected 2 chunks, as in the step's other operands, found '0]'"));
  EXPECT_EQ(step_error("out[0] <- in[0] as in[0:2]"),
            line5("expected 1 chunks, as in the step's other operands, found '0:2]'"));
  EXPECT_EQ(step_error("tmp[0] <- from(1)"),
            line5("expected 'as in[chunk]' or 'as out[chunk]' (a step without an own in or out "
                  "operand must say how much it moves), found the end of the line"));
  EXPECT_EQ(step_error("tmp[0] <- from(1) as tmp[0]"),
            line5("expected in[ or out[, found 'tmp[0]'"));
  EXPECT_EQ(step_error("out[0] <- in[0];"), line5("expected the end of the line, found ';'"));
  EXPECT_EQ(step_error("() <- from(1), from(0)"),
            line5("expected the end of the line, found ', from(0)'"));
  EXPECT_EQ(step_error("out[99999999999999999999999999] <- in[0]"),
            line5("expected a chunk (0 to 4294967295), found '999999999999999999999999...'"));
  EXPECT_EQ(step_error("\x01\xff\x1b[31m <- in[0]"),
            line5("expected a destination: in[, out[, tmp[ or to(, found '???[31m <- in[0]'"));
  EXPECT_EQ(step_error("lane 1"),
            line5("expected a later lane (lanes stand in order, each once), found '1'"));
  EXPECT_EQ(step_error("lane 2"), line5("expected a lane (0 to 1), found '2'"));
  EXPECT_EQ(step_error("rank 0"),
            line5("expected rank 1 (ranks stand in order, each once), found '0'"));
}

TEST(TextErrors, OfTheWhole) {
  EXPECT_EQ(error_of(""), "plan text, line 1: expected 'tutti plan 1', found the end of the line");
  EXPECT_EQ(error_of("tutti plan 2"), "plan text, line 1: expected '1', found '2'");
  EXPECT_EQ(error_of("tutti plan 1\n"),
            "plan text, line 2: expected a collective and an algorithm, found the end of the line");
  EXPECT_EQ(error_of("tutti plan 1\nall_reduced ring"),
            "plan text, line 2: expected a collective (all_reduce, ...), found 'all_reduced ring'");
  EXPECT_EQ(error_of("tutti plan 1\nreduce x ranks 2 pieces 1 slots 1 lanes 1"),
            "plan text, line 2: expected 'root', found 'pieces 1 slots 1 lanes 1'");
  EXPECT_EQ(error_of("tutti plan 1\nreduce x ranks 2 root 2 pieces 1 slots 1 lanes 1"),
            "plan text, line 2: expected a rank (0 to 1), found '2 pieces 1 slots 1 lanes...'");
  EXPECT_EQ(error_of(fmt::format("{}rank 0\n", kHeader)),
            "plan text, line 4: expected 'rank 1', found the end of the text (the header says "
            "ranks 2)");
  EXPECT_EQ(error_of(fmt::format("{}rank 0\nrank 1\nrank 2", kHeader)),
            "plan text, line 5: expected a rank (0 to 1), found '2'");
  EXPECT_EQ(error_of(fmt::format("{}to(1) <- in[0]", kHeader)),
            "plan text, line 3: expected 'rank 0', found 'to(1) <- in[0]'");
  EXPECT_EQ(error_of(fmt::format("{}rank 0\nto(1) <- in[0]", kHeader)),
            "plan text, line 4: expected 'rank', or 'lane' before the first step, found 'to(1) <- "
            "in[0]'");
  EXPECT_EQ(error_of(fmt::format("{}lane 0", kHeader)),
            "plan text, line 3: a lane before the first rank");
}

TEST(TextErrors, LimitsStandBeforeWhatTheyLimit) {
  const auto header = [](std::string_view numbers) {
    return error_of(fmt::format("tutti plan 1\nall_to_all x {}\nrank 0", numbers));
  };
  EXPECT_NE(header("ranks 65537 pieces 1 slots 1 lanes 1").find("(1 to 65536)"), std::string::npos);
  EXPECT_NE(header("ranks 0 pieces 1 slots 1 lanes 1").find("(1 to 65536)"), std::string::npos);
  EXPECT_NE(header("ranks 2 pieces 16777217 slots 1 lanes 1").find("pieces"), std::string::npos);
  EXPECT_NE(header("ranks 2 pieces 1 slots 65537 lanes 1").find("slots"), std::string::npos);
  EXPECT_NE(header("ranks 2 pieces 1 slots 1 lanes 256").find("(1 to 255)"), std::string::npos);
  EXPECT_NE(header("ranks 65536 pieces 1 slots 1 lanes 255").find("lanes in all"),
            std::string::npos);
  EXPECT_NE(header("ranks 65536 pieces 16777216 slots 1 lanes 1").find("chunks in all"),
            std::string::npos);
  EXPECT_NE(header("ranks 4 pieces 16777216 slots 1 lanes 1").find("chunks in all"),
            std::string::npos);
  EXPECT_NE(error_of(fmt::format("{}rank 0 tmp 16777217", kHeader)).find("tmp"), std::string::npos);

  std::string many = "() <- from(1)";
  for (int i = 0; i < 65'535; ++i) many += "+from(1)";
  EXPECT_EQ(step_error(many),
            "plan text, line 5: a step has more than 65,535 operands on one side");
}

// --- Hostile texts -------------------------------------------------------------------------------

/// A few random edits of the kinds that find parser bugs.
std::string mutated(std::string text, std::mt19937& random) {
  const auto below = [&](std::size_t n) { return n == 0 ? 0 : random() % n; };
  for (std::size_t edits = 1 + below(3); edits > 0; --edits) {
    const std::size_t at = below(text.size());
    switch (below(7)) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, 1 + below(8));
        break;
      case 2:
        text.insert(at, text.substr(below(text.size()), below(40)));
        break;
      case 3:
        text.insert(at, std::string(below(24), '9'));
        break;
      case 4:
        text[at] = "0123456789[]()<-=+,.:@#\n "[below(25)];
        break;
      case 5:  // another number, often
        if (const auto digit = text.find_first_of("0123456789", at); digit != std::string::npos) {
          text[digit] = "0123456789"[below(10)];
        }
        break;
      default:
        text.resize(at);
        break;
    }
    if (text.empty()) text.push_back('#');
  }
  return text;
}

TEST(Text, SurvivesHostileTexts) {
  std::vector<std::string> seeds = {std::string(kHandWritten), std::string(kAsWritten)};
  for (const auto& [collective, algorithm] :
       {std::pair(Collective::all_reduce, "ring"), std::pair(Collective::broadcast, "tree")}) {
    if (const Algorithm* a = find_algorithm(collective, algorithm)) {
      seeds.push_back(to_text(generate_plan(*a, {collective, 4, 0, 1, 0})));
    }
  }
  std::mt19937 random(20240607);
  int read = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string text = mutated(seeds[static_cast<std::size_t>(i) % seeds.size()], random);
    Plan plan;
    try {
      plan = plan_from_text(text);
    } catch (const Error&) {
      continue;
    }
    ++read;
    const std::string written = to_text(plan);
    ASSERT_EQ(to_text(plan_from_text(written)), written) << text;
    // The other readers that take a plan without trusting it.
    if (plan.header.pieces > 1000) continue;
    ASSERT_FALSE(draw_svg(plan).empty());
    verify(plan);
  }
  EXPECT_GT(read, 500);  // enough mutants are plans for the test to mean something
}

}  // namespace
}  // namespace tutti
