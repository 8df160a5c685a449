// Wide plans: partial sums that travel as float32 are not rounded, which is proved; each way to
// round one, or to take a partial sum for a result, is refused with a story.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "collectives/algorithms.h"
#include "collectives/cut.h"
#include "collectives/model/domains.h"
#include "collectives/model/predict.h"
#include "collectives/text/write.h"
#include "execute/program.h"
#include "tests/collectives/verify_plans.h"
#include "tests/collectives/whole_plan.h"

namespace tutti {
namespace {

const std::string kFour = R"(all_reduce by_hand  ranks 4  pieces 1  slots 1  lanes 1  wide
rank 0  tmp 1
  lane 0
    tmp[0] <- in[0] + from(1)
    out[0], to(1), to(2) <= tmp[0] + from(2)
rank 1
  lane 0
    to(0) <- in[0]
    out[0] <- from(0)
rank 2
  lane 0
    to(0) <- in[0] + from(3)
    out[0], to(3) <- from(0)
rank 3
  lane 0
    to(2) <- in[0]
    out[0] <- from(2)
)";
const char* const kCanonical =
    "the canonical expression is round((in[0]@0 + in[0]@1) + (in[0]@2 + "
    "in[0]@3))";

void expect_rounds_in_between(const std::string& text, const std::string& is) {
  const Verdict v = verify(parse(text), {.invariant = Invariance::all});
  EXPECT_FALSE(v.proved) << text;
  EXPECT_NE(v.story.find("it is " + is + ", but " + kCanonical), std::string::npos) << v.story;
  // Of types that are stored as they are summed it is right.
  EXPECT_TRUE(verify(parse(text), {.invariant = Invariance::float32_up}).proved);
}

TEST(WidePlans, OneByHandRoundsOnce) {
  for (const bool in_place : {false, true}) {
    const Verdict v = verify(parse(kFour), {.in_place = in_place, .invariant = Invariance::all});
    EXPECT_TRUE(v.proved) << v.story;
    EXPECT_EQ(v.roundings, 1U);
    expect_proved(kFour, in_place);
  }
  EXPECT_EQ(to_text(parse(kFour)), "tutti plan 1\n" + kFour);
}

TEST(WidePlans, WithoutTheWordItRoundsThreeTimes) {
  const std::string plain = with(kFour, "  wide", "");
  expect_rounds_in_between(plain, "round(round(in[0]@0 + in[0]@1) + round(in[0]@2 + in[0]@3))");
  EXPECT_EQ(verify(parse(plain), {.scales = false}).roundings, 2U);  // one in the other
}

TEST(WidePlans, APartialSumThatIsStoredInOutIsRounded) {
  expect_rounds_in_between(with(with(kFour, "tmp[0] <- in[0]", "out[0] <- in[0]"),
                                "<= tmp[0] + from(2)", "<= out[0] + from(2)"),
                           "round(round(in[0]@0 + in[0]@1) + (in[0]@2 + in[0]@3))");
  // The same where it is stored in tmp, too, and copied from there.
  const std::string copied = with(kFour, "    tmp[0] <- in[0] + from(1)\n",
                                  "    tmp[0] <- in[0] + from(1)\n    out[0] <- tmp[0]\n");
  EXPECT_TRUE(verify(parse(copied), {.invariant = Invariance::all}).proved);
  expect_rounds_in_between(with(copied, "<= tmp[0] + from(2)", "<= out[0] + from(2)"),
                           "round(round(in[0]@0 + in[0]@1) + (in[0]@2 + in[0]@3))");
}

TEST(WidePlans, AnotherOrderIsRefused) {
  const Verdict v = verify(parse(with(kFour, "tmp[0] + from(2)", "from(2) + tmp[0]")),
                           {.invariant = Invariance::all});
  EXPECT_FALSE(v.proved);
  EXPECT_NE(v.story.find("it is round((in[0]@2 + in[0]@3) + (in[0]@0 + in[0]@1)), but "),
            std::string::npos)
      << v.story;
}

TEST(WidePlans, APartialSumIsNotTakenForAResult) {
  // Rank 2 has its sum, and rank 3's, in `out`, which is sent as it is there.
  expect_refuted(with(kFour, "    to(0) <- in[0] + from(3)\n",
                      "    out[0] <- in[0] + from(3)\n    to(0) <- out[0]\n"),
                 {"rank 0 lane 0 step 1",
                  "expects partial sums from rank 2, whose message holds "
                  "results"});
  // Rank 0 copies what rank 1 sends.
  expect_refuted(with(kFour, "tmp[0] <- in[0] + from(1)", "tmp[0] <- from(1) as in[0]"),
                 {"expects results from rank 1, whose message holds partial sums"});
}

TEST(WidePlans, AResultIsNotTakenForAPartialSum) {
  expect_refuted(with(kFour, "out[0], to(3) <- from(0)", "out[0], to(3) <- from(0) + in[0]"),
                 {"expects partial sums from rank 0, whose message holds results"});
}

TEST(WidePlans, TmpIsForPartialSumsOfItsOwnRank) {
  expect_refuted(
      with(with(kFour, "out[0], to(1), to(2) <= tmp[0]", "tmp[0], to(1), to(2) <= tmp[0]"),
           "<= tmp[0] + from(2)\n", "<= tmp[0] + from(2) as in[0]\n    out[0] <- tmp[0]\n"),
      {"completes a reduction into tmp, which in a wide plan holds partial sums"});
  expect_refuted(with(kFour, "    to(0) <- in[0]\n", "    to(0) <- tmp[0]@0 as in[0]\n"),
                 {"in a wide plan tmp is its own rank's alone"});
}

TEST(WidePlans, OtherCollectivesAreRefused) {
  expect_refuted(R"(broadcast direct  ranks 2  root 0  pieces 1  slots 1  lanes 1  wide
rank 0
  lane 0
    out[0], to(1) <- in[0]
rank 1
  lane 0
    out[0] <- from(0)
)",
                 {"a wide plan carries partial sums, but broadcast reduces nothing"});
}

// --- Those that ship -----------------------------------------------------------------------------

PlanParts in_order(const Algorithm& a, int ranks, int a_host) {
  PlanRequest request;
  request.collective = a.collective;
  request.ranks = ranks;
  request.in_order = true;
  std::vector<int> hosts;
  for (int r = 0; r < ranks; ++r) hosts.push_back(r / a_host);
  const Domains layout = Domains::subtrees(Domains(hosts));
  return {generate(a, request, 0, layout).header,
          [&a, request, layout](int r) { return generate(a, request, r, layout); }};
}

void mark(Plan& plan, Format format) {
  plan.header.format = format;
  for (RankPlan& part : plan.ranks) part.header.format = format;
}

std::vector<const Algorithm*> wide_ones() {
  std::vector<const Algorithm*> all;
  for (const Algorithm& a : algorithms()) {
    if (a.invariant && in_order(a, 4, 2).header.format == Format::wide) all.push_back(&a);
  }
  return all;
}

TEST(WidePlans, AreThoseThatAddPartialSums) {
  std::string all;
  for (const Algorithm* a : wide_ones()) {
    all += fmt::format("{} {}\n", name(a->collective), a->name);
  }
  EXPECT_EQ(all,
            "all_reduce recursive_doubling\n"
            "all_reduce hierarchical_direct\nall_reduce hierarchical_pipelined\n"
            "reduce_scatter hierarchical_direct\nreduce_scatter hierarchical_pipelined\n"
            "reduce hierarchical_direct\nreduce_scatter_v hierarchical_direct\n");
}

TEST(WidePlans, ThatStorePartialSumsInOutAreRefused) {
  // As a generator would that forgot tmp. (In `out` of all_reduce and reduce_scatter there is
  // room.)
  int mutants = 0;
  for (const Algorithm* const a : wide_ones()) {
    Plan plan = test::whole_plan(in_order(*a, 7, 2));
    ASSERT_TRUE(verify(plan, {.invariant = Invariance::all}).proved);
    if (a->collective == Collective::reduce) continue;
    for (RankPlan& part : plan.ranks) {
      for (auto& lane : part.lanes) {
        for (std::size_t i = lane.size() - 1; i-- > 0;) {
          Operand* const to = part.operands.data() + lane[i].first_operand;
          if (lane[i].count == 0 || to->space != Space::tmp) continue;
          // The next step reads it.
          const Step& next = lane[i + 1];
          Operand* const operands = part.operands.data() + next.first_operand;
          Operand mine = operands[0];
          for (std::uint32_t d = 0; d < next.destinations; ++d) {
            if (!operands[d].is_link() && !operands[d].is_remote()) mine = operands[d];
          }
          for (std::uint32_t s = next.destinations; s < next.destinations + next.sources; ++s) {
            if (operands[s].space == Space::tmp) operands[s] = mine;
          }
          *to = mine;
          ++mutants;
        }
      }
    }
    const Verdict v = verify(plan, {.invariant = Invariance::all});
    EXPECT_FALSE(v.proved) << a->name;
    EXPECT_NE(v.story.find("has bits that depend on the plan: it is "), std::string::npos)
        << v.story;
    EXPECT_NE(v.story.find("round(in[0]@0 + in[0]@1) + (in[0]@2 + in[0]@3)"), std::string::npos)
        << v.story;
    // Where each rank makes its own result, some ranks' now are of rounded sums, and others' not.
    const bool by_owners = a->name != "recursive_doubling";
    EXPECT_EQ(verify(plan, {.invariant = Invariance::float32_up}).proved, by_owners) << a->name;
  }
  EXPECT_GT(mutants, 10);
}

TEST(WidePlans, OfOtherFormatsAreRefused) {
  for (const Algorithm* const a : wide_ones()) {
    Plan plan = test::whole_plan(in_order(*a, 7, 2));
    mark(plan, Format::plain);
    EXPECT_FALSE(verify(plan, {.invariant = Invariance::all}).proved) << a->name;
    EXPECT_TRUE(verify(plan, {.invariant = Invariance::float32_up}).proved) << a->name;
    mark(plan, Format::compressed);
    EXPECT_FALSE(verify(plan).proved) << a->name;
  }
}

TEST(WidePlans, MovedCompletionsAreRefused) {
  // `completes` says where a sum is rounded.
  int mutants = 0;
  for (const Algorithm* const a : wide_ones()) {
    Plan plan = test::whole_plan(in_order(*a, 5, 2));
    for (RankPlan& part : plan.ranks) {
      for (auto& lane : part.lanes) {
        for (Step& step : lane) {
          if (step.count == 0) continue;
          step.completes = !step.completes;
          EXPECT_FALSE(verify(plan).proved) << a->name;
          step.completes = !step.completes;
          ++mutants;
        }
      }
    }
  }
  EXPECT_GT(mutants, 80);
}

// --- What travels --------------------------------------------------------------------------------

/// Bytes of the messages of rank 0's steps, sent and taken, where it moves data on links.
std::string messages(DataType type) {
  const Algorithm& a = *find_algorithm(Collective::all_reduce, "hierarchical_direct");
  const RankPlan part = in_order(a, 4, 2).part(0);
  const std::size_t count = 4 * 256;
  const BlockTable table{nullptr, count, {}, {}};
  const Tiling tiling =
      cut(part.header, {true, true, 0}, count, count * size_of(type), type, {4, 1 << 20}, 1 << 20);
  const TileProgram program = compile(part, {type, table, table, tiling}, 0, nullptr);
  EXPECT_EQ(tiling.tiles, 1U);
  std::string text;
  for (const Action& action : program.lanes[0]) {
    if (action.signals) continue;
    for (const SendLink& s : action.sends)
      text += fmt::format("to {}: {}  ", s.rank, action.bytes_out);
    for (const ReceiveLink& r : action.receives) {
      text += fmt::format("from {}: {}  ", r.rank, action.bytes_in);
    }
  }
  return text;
}

TEST(WidePlans, SendPartialSumsAsFloat32AndResultsAsTheyAre) {
  // Of 1,024 elements each rank owns 256.
  EXPECT_EQ(messages(DataType::bfloat16), "to 2: 1024  to 2: 512  from 2: 1024  from 2: 512  ");
  EXPECT_EQ(messages(DataType::float8_e4m3), "to 2: 1024  to 2: 256  from 2: 1024  from 2: 256  ");
  EXPECT_EQ(messages(DataType::float32), "to 2: 1024  to 2: 1024  from 2: 1024  from 2: 1024  ");
  EXPECT_EQ(messages(DataType::float64), "to 2: 2048  to 2: 2048  from 2: 2048  from 2: 2048  ");
}

TEST(WidePlans, NeedSlotsForALineOfEachChunkInFloat32) {
  PlanHeader h;
  h.format = Format::wide;
  EXPECT_EQ(least_slot(h), 256U);
  EXPECT_FALSE(links_suffice(h, {4, 128}));
  EXPECT_TRUE(links_suffice(h, {4, 256}));
  // A chunk of a tile fits a slot in float32: 64 KiB of slots are 16 KiB of elements of 8 bits.
  EXPECT_EQ(cut(h, {}, 1 << 20, 1 << 20, DataType::float8_e4m3, {4, 64 << 10}, 1 << 20).tile,
            std::size_t{16} << 10);
  EXPECT_EQ(cut(h, {}, 1 << 20, 4 << 20, DataType::float32, {4, 64 << 10}, 1 << 20).tile,
            std::size_t{16} << 10);
}

TEST(WidePlans, AreWeighedWithWhatTravels) {
  Platform p{default_machine(), 4, 4, {8, 1 << 20, 8}, 4 << 20};
  p.hosts = Domains(std::vector{0, 0, 1, 1});
  p.domains = p.hosts;
  const Algorithm& a = *find_algorithm(Collective::all_reduce, "hierarchical_direct");
  const auto across = [&](DataType type) {
    Workload w{Collective::all_reduce, 8 << 20, type};
    w.invariant = true;
    const Prediction found = predict(a, w, p);
    EXPECT_TRUE(found.possible);
    return found.across;
  };
  // A host sends half of the data as sums, and half as results.
  EXPECT_EQ(across(DataType::float32), 8 << 20);
  EXPECT_EQ(across(DataType::bfloat16), (4 << 20) * 2 + (4 << 20));
  EXPECT_EQ(across(DataType::float8_e5m2), (4 << 20) * 4 + (4 << 20));
}

TEST(WidePlans, DoNotRunNarrowTypesOnGpus) {
  Platform p = gpu_platform(8);
  EXPECT_FALSE(p.wide_links);
  const Algorithm& a = *find_algorithm(Collective::all_reduce, "hierarchical_direct");
  Workload w{Collective::all_reduce, 8 << 20, DataType::bfloat16};
  w.invariant = true;
  EXPECT_FALSE(predict(a, w, p).possible);
  w.type = DataType::float32;
  EXPECT_TRUE(predict(a, w, p).possible);
}

}  // namespace
}  // namespace tutti
