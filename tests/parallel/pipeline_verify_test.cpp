// The verifier of pipeline schedules: what it says of wrong ones, and that it is right about
// mutants and random schedules, which are also run, event by event, by an interpreter of its own.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <utility>

#include "parallel/pipeline/generate.h"
#include "parallel/pipeline/simulate.h"
#include "parallel/pipeline/text.h"
#include "parallel/pipeline/verify.h"
#include "tests/parallel/pipeline_cases.h"
#include "tests/support/thread_ranks.h"

namespace tutti::parallel::pipeline {
namespace {

/// Two ranks, `micro_batches` 2.
Schedule two_ranks(const std::string& first, const std::string& second, int buffers = 1,
                   int live = 2) {
  return schedule_from_text(
      fmt::format("tutti schedule 1\nmine ranks 2 stages 2 micro-batches 2 buffers {} live {}\n"
                  "rank 0 stages 0\n{}\nrank 1 stages 1\n{}\n",
                  buffers, live, first, second));
}

std::string story(const Schedule& s) {
  const Verdict verdict = verify(s);
  EXPECT_EQ(verdict.proved, verdict.story.empty());
  return verdict.story;
}

constexpr auto kFirst = "0F0 0F1 0B0 0B1";
constexpr auto kSecond = "1F0 1B0 1F1 1B1";

TEST(PipelineVerify, ProvesAndCounts) {
  const Verdict verdict = verify(two_ranks(kFirst, kSecond));
  EXPECT_TRUE(verdict.proved) << verdict.story;
  EXPECT_EQ(verdict.live, (std::vector<int>{2, 1}));
  EXPECT_EQ(verdict.actions, 8u);
  EXPECT_EQ(verdict.messages, 4u);
}

TEST(PipelineVerify, SaysWhatIsMissingOrTooMuch) {
  EXPECT_EQ(story(two_ranks("0F0 0B0 0B1", kSecond)),
            "0F1 is missing on rank 0: the forward of stage 0, micro-batch 1");
  EXPECT_EQ(story(two_ranks("0F0 0F1 0B0", kSecond)),
            "0B1 is missing on rank 0: the backward of stage 0, micro-batch 1");
  EXPECT_EQ(story(two_ranks("0F0 0F1 0B0 0I1", kSecond)),
            "0W1 is missing on rank 0: the backward of weights of stage 0, micro-batch 1");
  EXPECT_EQ(story(two_ranks("0F0 0F1 0W0 0B1", kSecond)),
            "0I0 is missing on rank 0: the backward of inputs of stage 0, micro-batch 0");
  EXPECT_EQ(
      story(two_ranks("0F0 0F1 0B0 0B1 0F0", kSecond)),
      "rank 0, action 4 (0F0: forward of stage 0, micro-batch 0) stands twice; the first time "
      "as action 0");
  EXPECT_EQ(
      story(two_ranks("0F0 0F1 0B0 0B1 0W1", kSecond)),
      "rank 0, action 3 (0B1: backward of stage 0, micro-batch 1), and rank 0, action 4 (0W1: "
      "backward of weights of stage 0, micro-batch 1) too: a backward is done in one, or in "
      "its two parts");
  EXPECT_EQ(story(two_ranks("0F0 0F1 0B0 0B1 1F0", kSecond)),
            "rank 0, action 4 (1F0: forward of stage 1, micro-batch 0): stage 1 is on rank 1");
}

TEST(PipelineVerify, SaysWhatIsOutOfRange) {
  Schedule s = two_ranks(kFirst, kSecond);
  s.actions[0][1].stage = 2;
  EXPECT_EQ(story(s),
            "rank 0, action 1 (2F1: forward of stage 2, micro-batch 1): there are stages "
            "0 to 1");
  s = two_ranks(kFirst, kSecond);
  s.actions[0][1].micro_batch = -1;
  EXPECT_EQ(story(s),
            "rank 0, action 1 (0F-1: forward of stage 0, micro-batch -1): there are "
            "micro-batches 0 to 1");
  s = two_ranks(kFirst, kSecond);
  s.placement[1] = 2;
  EXPECT_EQ(story(s), "stage 1 is placed on rank 2, and there are ranks 0 to 1");
  s.placement.clear();
  EXPECT_EQ(story(s), "the schedule has 0 stages; it must have 1 to 16384");
  s = two_ranks(kFirst, kSecond);
  s.buffers = 0;
  EXPECT_EQ(story(s), "the schedule has 0 buffers; it must have 1 to 65536");
  s = two_ranks(kFirst, kSecond);
  s.micro_batches = 1 << 30;
  EXPECT_EQ(story(s), "the schedule has 1073741824 micro-batches; it must have 1 to 65536");
  s.micro_batches = 60'000;
  EXPECT_EQ(
      story(s),
      "the schedule has 8 actions; 2 stages and 60000 micro-batches need 240000, and 16777216 "
      "is the most");
  s = two_ranks(kFirst, kSecond);
  s.actions[1][0].work = static_cast<Work>(9);
  EXPECT_EQ(story(s), "rank 1, action 0 is no action");
  EXPECT_FALSE(verify(Schedule{}).proved);
}

TEST(PipelineVerify, SaysWhatIsOutOfOrder) {
  EXPECT_EQ(story(two_ranks("0B0 0F0 0F1 0B1", kSecond)),
            "rank 0, action 0 (0B0: backward of stage 0, micro-batch 0) stands before its forward, "
            "action 1");
  EXPECT_EQ(
      story(two_ranks("0F0 0F1 0W0 0I0 0B1", kSecond)),
      "rank 0, action 2 (0W0: backward of weights of stage 0, micro-batch 0) stands before its "
      "backward of inputs, action 3");
  EXPECT_EQ(story(two_ranks("0F1 0F0 0B0 0B1", kSecond)),
            "rank 1, action 0 (1F0: forward of stage 1, micro-batch 0) takes activation 0 of its "
            "link, and that is of micro-batch 1: it comes from rank 0, action 0 (0F1: forward of "
            "stage 0, micro-batch 1)");
  EXPECT_EQ(
      story(two_ranks("0F0 0F1 0B1 0B0", kSecond)),
      "rank 0, action 2 (0B1: backward of stage 0, micro-batch 1) takes gradient 0 of its link, "
      "and that is of micro-batch 0: it comes from rank 1, action 1 (1B0: backward of stage 1, "
      "micro-batch 0)");
}

TEST(PipelineVerify, TellsTheStoryOfADeadlock) {
  EXPECT_EQ(
      story(two_ranks("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1")),
      "deadlock with 1 buffer at each end of a link:\n"
      "  rank 0, action 1 (0B0: backward of stage 0, micro-batch 0) waits for the gradient of "
      "micro-batch 0 from stage 1 (rank 1) to stage 0 (rank 0), which rank 1, action 2 (1B0: "
      "backward of stage 1, micro-batch 0) sends\n"
      "  rank 1, action 1 (1F1: forward of stage 1, micro-batch 1) waits for the activation of "
      "micro-batch 1 from stage 0 (rank 0) to stage 1 (rank 1), which rank 0, action 2 (0F1: "
      "forward of stage 0, micro-batch 1) sends");
}

// Both stages of rank 0 send to rank 1, which wants what is behind a message that has no room.
TEST(PipelineVerify, MessagesThatHoldUpOthersAreSeen) {
  Schedule s = schedule_from_text(
      "tutti schedule 1\nmine ranks 2 stages 4 micro-batches 3 buffers 2 live 6\n"
      "rank 0 stages 0 2\n0F0 0F1 0F2 2F0 2F1 2F2 2B0 2B1 2B2 0B0 0B1 0B2\n"
      "rank 1 stages 1 3\n1F0 3F0 1F1 1F2 3F1 3F2 3B0 3B1 3B2 1B0 1B1 1B2\n");
  EXPECT_EQ(story(s), "");
  s.buffers = 1;
  EXPECT_EQ(
      story(s),
      "deadlock with 1 buffer at each end of a link:\n"
      "  rank 1, action 1 (3F0: forward of stage 3, micro-batch 0) waits for the activation of "
      "micro-batch 0 from stage 2 (rank 0) to stage 3 (rank 1), behind the activation of "
      "micro-batch 2 from stage 0 (rank 0) to stage 1 (rank 1), which has no room there until "
      "rank 1, action 2 (1F1: forward of stage 1, micro-batch 1) has ended");
}

TEST(PipelineVerify, ComparesLiveActivations) {
  EXPECT_EQ(
      story(two_ranks(kFirst, kSecond, 1, 1)),
      "rank 0, action 1 (0F1: forward of stage 0, micro-batch 1) makes 2 activations that rank "
      "0 keeps; the schedule declares 1 at most");
  // The weights' part still needs what the forward has kept.
  EXPECT_EQ(verify(two_ranks(kFirst, "1F0 1I0 1F1 1I1 1W0 1W1")).live, (std::vector<int>{2, 2}));
}

TEST(PipelineVerify, UnprovenSchedulesAreNotSimulated) {
  const Error e =
      test::error_of([] { simulate(two_ranks("0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"), {}); });
  EXPECT_EQ(e.code(), ErrorCode::unproven_plan);
  EXPECT_EQ(std::string(e.what()).rfind("the pipeline schedule mine is not proved: deadlock", 0),
            0u);
}

/// What the verifier says agrees with what happens, in `runs` random orders.
void expect_right(const Schedule& s, std::mt19937& random, int runs, int& proved, int& refuted) {
  const Verdict verdict = verify(s);
  (verdict.proved ? proved : refuted) += 1;
  for (int i = 0; i < runs; ++i) {
    const std::string wrong = test::interpret(s, random);
    ASSERT_EQ(verdict.proved, wrong.empty())
        << to_text(s) << "the verifier: " << verdict.story << "\nthe interpreter: " << wrong;
  }
}

TEST(PipelineVerify, MutantsAreCaughtOrRight) {
  std::mt19937 random(7);
  int proved = 0, refuted = 0;
  const auto pick = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  for (const Generator& g : generators()) {
    for (const auto& [p, m] : {std::pair(2, 3), std::pair(3, 6), std::pair(4, 8)}) {
      const Schedule original = generate(g, {p, m, 0});
      for (int i = 0; i < 200; ++i) {
        Schedule s = original;
        auto& actions = s.actions[pick(s.actions.size())];
        const std::size_t at = pick(actions.size());
        switch (i % 8) {
          case 0:
          case 1:
            std::swap(actions[at], actions[(at + 1) % actions.size()]);
            break;
          case 2:
            std::swap(actions[at], actions[pick(actions.size())]);
            break;
          case 3:
            actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(at));
            break;
          case 4:
            actions.insert(actions.begin() + static_cast<std::ptrdiff_t>(pick(actions.size())),
                           actions[at]);
            break;
          case 5:
            actions[at].micro_batch = static_cast<int>(pick(static_cast<std::size_t>(m)));
            break;
          case 6:
            actions[at].work = static_cast<Work>(pick(4));
            break;
          default:
            s.buffers = 1;
            std::swap(actions[at], actions[(at + 1) % actions.size()]);
        }
        expect_right(s, random, 3, proved, refuted);
      }
      Schedule fewer = original;
      if (--fewer.buffers > 0) expect_right(fewer, random, 3, proved, refuted);
      fewer = original;
      if (--fewer.live > 0) {
        expect_right(fewer, random, 1, proved, refuted);
        EXPECT_FALSE(verify(fewer).proved);
      }
    }
  }
  EXPECT_GT(proved, 250);
  EXPECT_GT(refuted, 2000);
}

// A mutant that only drops, doubles or changes an action is never right.
TEST(PipelineVerify, EveryDroppedOrDoubledActionIsCaught) {
  for (const Generator& g : generators()) {
    const Schedule original = generate(g, {3, 5, 0});
    for (std::size_t r = 0; r < original.actions.size(); ++r) {
      for (std::size_t i = 0; i < original.actions[r].size(); ++i) {
        Schedule s = original;
        s.actions[r].erase(s.actions[r].begin() + static_cast<std::ptrdiff_t>(i));
        EXPECT_FALSE(verify(s).proved) << to_text(s);
        s = original;
        s.actions[r].insert(s.actions[r].begin(), s.actions[r][i]);
        EXPECT_FALSE(verify(s).proved) << to_text(s);
      }
    }
  }
}

TEST(PipelineVerify, RandomSchedulesRunAsTheVerdictSays) {
  std::mt19937 random(11);
  int proved = 0, refuted = 0;
  for (int i = 0; i < 5000; ++i) {
    const Schedule s = test::random_schedule(random, 1 + i % 5);
    ASSERT_TRUE(verify(s).matches) << to_text(s) << verify(s).story;
    expect_right(s, random, 2, proved, refuted);
  }
  EXPECT_GT(proved, 300);
  EXPECT_GT(refuted, 100);
}

}  // namespace
}  // namespace tutti::parallel::pipeline
