// The verifier against mutants: every plan that ships, spoilt in one place. A mutant is to be
// refuted; one that is proved must be as good as the original, and shows it in random runs of an
// interpreter that shares no code with the verifier (plan_interpreter.h).
//
// Which places are spoilt differs from run to run: the test says its seed, and TUTTI_TEST_SEED=N
// repeats it. TUTTI_TEST_SPOTS says how many there are of a plan. The table that it prints says how
// many mutants of each kind there were, and
//   caught      refuted, of those that are wrong (all but the equal ones). Less than 100 % is a
//               failure;
//   equal       proved, and right in every run of the interpreter: what was spoilt does not matter;
//   run wrong   of a sample of the refuted, those that the interpreter saw go wrong as well. The
//               rest is wrong with some timing that it did not come upon, or by the rules alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "collectives/algorithms.h"
#include "collectives/text/text.h"
#include "collectives/text/write.h"
#include "collectives/verify.h"
#include "core/error.h"
#include "tests/collectives/plan_interpreter.h"
#include "tests/collectives/plan_mutations.h"

namespace tutti::test {
namespace {

constexpr int kRankCounts[] = {1, 2, 3, 4, 5, 8};

/// Of this run of the tests.
std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* given = std::getenv("TUTTI_TEST_SEED");
    return given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device{}();
  }();
  return value;
}

/// Of a plan; where there are more, a random choice.
std::size_t most_spots() {
  const char* given = std::getenv("TUTTI_TEST_SPOTS");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : 8;
}

struct Original {
  Plan plan;
  std::string name;
};

/// Every algorithm's plan for `ranks` ranks, on one lane and on two, and the wide ones.
const std::vector<Original>& originals(int ranks) {
  static std::map<int, std::vector<Original>> all;
  const auto [found, is_new] = all.try_emplace(ranks);
  std::vector<Original>& result = found->second;
  if (!is_new) return result;
  for (const Algorithm& algorithm : algorithms()) {
    for (std::uint32_t lanes = 1; lanes <= (algorithm.lanes && ranks < 5 ? 2U : 1U); ++lanes) {
      PlanRequest request;
      request.collective = algorithm.collective;
      request.ranks = ranks;
      request.root = is_rooted(algorithm.collective) ? ranks - 1 : 0;
      request.lanes = lanes;
      try {
        result.push_back({generate_plan(algorithm, request),
                          fmt::format("{} {} ranks {} lanes {}", name(algorithm.collective),
                                      algorithm.name, ranks, lanes)});
        request.in_order = algorithm.invariant;
        Plan in_order = generate_plan(algorithm, request);
        if (in_order.header.format != Format::wide) continue;
        result.push_back({std::move(in_order), result.back().name + " wide"});
      } catch (const Error&) {
        // Not every algorithm serves every number of ranks.
      }
    }
  }
  return result;
}

std::vector<bool> modes(const Plan& plan) {
  if (has_in_place(plan.header.collective)) return {false, true};
  return {false};
}

std::string first_complaint(const Plan& plan, bool in_place, std::uint64_t runs) {
  for (std::uint64_t run = 1; run <= runs; ++run) {
    const std::string complaint = interpret(plan, in_place, seed() + run);
    if (!complaint.empty()) return fmt::format("run {}: {}", run, complaint);
  }
  return {};
}

TEST(Mutation, OriginalsAreProvedAndRunWell) {
  for (const int ranks : kRankCounts) {
    for (const Original& original : originals(ranks)) {
      for (const bool in_place : modes(original.plan)) {
        const Verdict v = verify(original.plan, {.in_place = in_place});
        EXPECT_TRUE(v.proved) << original.name << (in_place ? " in place: " : ": ") << v.story;
        EXPECT_EQ(first_complaint(original.plan, in_place, 20), "")
            << original.name << (in_place ? " in place" : "");
      }
    }
  }
}

std::vector<Spot> spots(const Plan& plan, Mutation::Needs needs) {
  if (needs == Mutation::Needs::plan) return {Spot{}};
  std::vector<Spot> result;
  for (const RankPlan& part : plan.ranks) {
    for (std::uint32_t l = 0; l < part.lanes.size(); ++l) {
      for (std::size_t i = 0; i < part.lanes[l].size(); ++i) {
        const Step& s = part.lanes[l][i];
        const std::size_t operands =
            needs == Mutation::Needs::step ? 1 : std::size_t{s.destinations} + s.sources;
        for (std::size_t o = 0; o < operands; ++o) result.push_back({part.rank, l, i, o});
      }
    }
  }
  return result;
}

/// What share of a kind's mutants is refuted at least. Of kinds that are always wrong: all of them.
/// The others hit something superfluous now and then; but if they did so much more often than when
/// this was written, the verifier, or the interpreter with it, would have gone blind.
double least_refuted(const Mutation& mutation) {
  static const std::map<std::string_view, double> shares = {{"add a destination", 0.65},
                                                            {"wrong space", 0.95},
                                                            {"wrong span", 0.95},
                                                            {"swap two sources", 0.25},
                                                            {"swap neighbouring steps", 0.4},
                                                            {"move a step to another lane", 0.4},
                                                            {"drop a signal and its wait", 0.85},
                                                            {"fewer slots", 0.9},
                                                            {"narrower slots", 0.95}};
  return mutation.is_always_wrong ? 1 : shares.at(mutation.name);
}

struct Tally {
  int mutants = 0;
  int refuted = 0;
  int missed = 0;      // proved, but some run went wrong
  int sampled = 0;     // of the refuted: run all the same
  int complained = 0;  // of the sampled: some run went wrong, too

  int equal() const { return mutants - refuted - missed; }
  void add(const Tally& t) {
    mutants += t.mutants;
    refuted += t.refuted;
    missed += t.missed;
    sampled += t.sampled;
    complained += t.complained;
  }
  void print(std::string_view kind) const {
    const auto share = [](int part, int of) {
      return of == 0 ? std::string("-") : fmt::format("{:.1f} %", 100.0 * part / of);
    };
    fmt::print("{:30}{:8} mutants {:>9} caught {:>9} equal {:>9} run wrong\n", kind, mutants,
               share(refuted, refuted + missed), share(equal(), mutants),
               share(complained, sampled));
  }
};

class MutationTest : public ::testing::TestWithParam<Mutation> {
 protected:
  static void SetUpTestSuite() {
    fmt::print("TUTTI_TEST_SEED={} spoils the same places again\n", seed());
  }
  static void TearDownTestSuite() { all_.print("all"); }

  void spoil_everything();
  void judge(const Original& original, const Plan& mutant, const Spot& spot, int variant,
             bool in_place);

  Tally tally_;
  inline static Tally all_;
};

void MutationTest::judge(const Original& original, const Plan& mutant, const Spot& spot,
                         int variant, bool in_place) {
  constexpr std::uint64_t kRuns = 10;
  constexpr int kSampled = 20;  // one of so many
  ++tally_.mutants;
  if (!verify(mutant, {.in_place = in_place}).proved) {
    if (tally_.refuted++ % kSampled != 0) return;
    ++tally_.sampled;
    if (!first_complaint(mutant, in_place, kRuns).empty()) ++tally_.complained;
    return;
  }
  const std::string complaint = first_complaint(mutant, in_place, kRuns);
  const bool is_miss = !complaint.empty();
  if (is_miss) ++tally_.missed;
  if (!is_miss && !GetParam().is_always_wrong) return;
  ADD_FAILURE() << "the verifier proves a mutant"
                << (is_miss ? ", and it goes wrong: " + complaint
                            : " of a kind of which each one must be refuted")
                << "\nTUTTI_TEST_SEED=" << seed() << ", " << original.name
                << (in_place ? " in place" : "") << ": " << GetParam().name << ", variant "
                << variant << ", rank " << spot.rank << " lane " << spot.lane << " step "
                << spot.step << " operand " << spot.operand << "\n"
                << to_text(mutant);
}

void MutationTest::spoil_everything() {
  const std::size_t most = most_spots();
  const Mutation& mutation = GetParam();
  // A kind spoils the same places whether the others run before it or not.
  std::seed_seq seeds{seed(), std::uint64_t{std::hash<std::string_view>{}(mutation.name)}};
  std::mt19937 random(seeds);
  for (const int ranks : kRankCounts) {
    for (const Original& original : originals(ranks)) {
      std::vector<Spot> at = spots(original.plan, mutation.needs);
      std::shuffle(at.begin(), at.end(), random);
      if (at.size() > most) at.resize(most);
      for (const Spot& spot : at) {
        for (const int variant : {0, 1}) {
          Plan mutant = original.plan;
          if (!mutation.apply(mutant, spot, variant)) continue;
          for (const bool in_place : modes(original.plan)) {
            judge(original, mutant, spot, variant, in_place);
            if (HasFailure()) return;  // one example says enough
          }
        }
      }
    }
  }
}

TEST_P(MutationTest, IsRefutedOrHarmless) {
  spoil_everything();
  tally_.print(GetParam().name);
  all_.add(tally_);
  EXPECT_GE(tally_.refuted, least_refuted(GetParam()) * tally_.mutants);
  EXPECT_GT(tally_.refuted, 0);
}

INSTANTIATE_TEST_SUITE_P(All, MutationTest,
                         ::testing::ValuesIn(mutations().begin(), mutations().end()),
                         [](const auto& test) {
                           std::string name(test.param.name);
                           for (char& c : name) c = c == ' ' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace tutti::test
