// The verifier's course: form, the symbolic run, results, races. See verify.h for what is proved
// and verify/ for how.
#include "collectives/verify.h"

#include <new>
#include <utility>

#include "collectives/verify/network.h"
#include "collectives/verify/races.h"
#include "collectives/verify/result.h"
#include "collectives/verify/schedule.h"
#include "collectives/verify/story.h"

namespace tutti {
namespace {

/// Returns Verdict::roundings.
std::uint32_t check_result(const proof::Network& network, bool scales) {
  proof::Schedule schedule(network);
  proof::SymbolicRun run(network, schedule, scales);
  schedule.run(1, false, run);
  run.check_results();
  return run.roundings();
}

void check_races(const proof::Network& network) {
  const proof::Sharing sharing(network);
  if (sharing.is_harmless()) return;
  proof::Schedule schedule(network);
  proof::RaceCheck races(network, schedule, sharing);
  // Ranks that use each other's memory finish a tile, with all lanes, before they begin the next.
  schedule.run(sharing.shares_tmp() ? 2 : 1, network.uses_windows, races);
}

}  // namespace

Verdict verify(const Plan& plan, const VerifyOptions& options) {
  Verdict verdict;
  for (const RankPlan& rank : plan.ranks) {
    for (const auto& lane : rank.lanes) verdict.steps += lane.size();
  }
  try {
    if (options.in_place && is_valid(plan.header.collective) &&
        !has_in_place(plan.header.collective)) {
      throw proof::Refuted{std::string(name(plan.header.collective)) + " has no in-place form"};
    }
    proof::Network network(plan, options.in_place);
    verdict.roundings = check_result(network, options.scales);
    check_races(network);
    verdict.traffic = std::move(network.traffic);
    verdict.proved = true;
  } catch (const proof::Refuted& wrong) {
    verdict.story = wrong.story;
  } catch (const std::bad_alloc&) {
    verdict.story = "the plan is too large to be proved in the memory that there is";
  }
  return verdict;
}

}  // namespace tutti
