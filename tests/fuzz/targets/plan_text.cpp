// Plans as text, as `tutti plan --file`, Communicator::use_plan() and the C interface take them:
// refused with a sentence, or a plan that the verifier judges and that is the same when it is
// written and read again.
#include "collectives/algorithms/generators.h"
#include "collectives/text/text.h"
#include "collectives/text/write.h"
#include "collectives/verify.h"
#include "tests/fuzz/target.h"

namespace tutti::fuzz::plan_text {
namespace {

/// Small enough for the verifier to take a moment: it follows every chunk.
bool is_small(const Plan& plan) {
  constexpr std::uint64_t kMost = 4096;
  std::uint64_t work = std::uint64_t{plan.header.pieces} * plan.ranks.size() * plan.ranks.size();
  for (const RankPlan& rank : plan.ranks) {
    work += rank.tmp_chunks;
    for (const auto& lane : rank.lanes) {
      for (const Step& step : lane) work += step.count;
    }
  }
  return plan.ranks.size() <= 16 && plan.header.pieces <= kMost && work <= kMost;
}

void run(std::string_view input) {
  Plan plan;
  if (!accepts(ErrorCode::invalid_argument, [&] { plan = plan_from_text(input); })) return;
  require(plan.ranks.size() == static_cast<std::size_t>(plan.header.ranks), "it has all its ranks");
  if (plan.ranks.size() > 4096) return;
  const std::string text = to_text(plan);
  require(to_text(plan_from_text(text)) == text,
          "a plan that was read is written and read the same");
  if (!is_small(plan)) return;
  const Verdict verdict = verify(plan);
  require(verdict.proved == verdict.story.empty(), "a plan that is not proved has a story");
}

std::vector<std::string> seeds() {
  std::vector<std::string> texts;
  const auto add = [&](auto* generate, PlanRequest request) {
    Plan plan;
    for (int r = 0; r < request.ranks; ++r) plan.ranks.push_back(generate(request, r));
    plan.header = plan.ranks.front().header;
    texts.push_back(to_text(plan));
  };
  add(algorithm::ring_all_reduce, {.ranks = 2});
  add(algorithm::ring_all_gather, {.collective = Collective::all_gather, .ranks = 3});
  add(algorithm::tree_broadcast, {.collective = Collective::broadcast, .ranks = 4, .root = 1});
  add(algorithm::one_shot_window_all_reduce, {.ranks = 2});
  return texts;
}

const Registered target({"plan_text", run, seeds});

}  // namespace
}  // namespace tutti::fuzz::plan_text
