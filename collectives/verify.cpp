// The verifier's course: form, the symbolic run, results, races. See verify.h for what is proved
// and verify/ for how.
#include "collectives/verify.h"

#include <fmt/format.h>

#include <algorithm>
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
std::uint32_t check_result(const proof::Network& network, const VerifyOptions& options) {
  proof::Schedule schedule(network);
  proof::SymbolicRun run(network, schedule, options);
  schedule.run(1, false, run);
  run.check_results();
  return run.roundings();
}

void check_races(const proof::Network& network) {
  const proof::Sharing sharing(network);
  if (sharing.is_harmless()) return;
  const std::uint32_t at_a_time = proof::RaceCheck::ranks_at_a_time(network);
  for (std::uint32_t first = 0; first < network.ranks(); first += at_a_time) {
    proof::Schedule schedule(network);
    proof::RaceCheck races(network, schedule, sharing,
                           {first, std::min(first + at_a_time, network.ranks())});
    // Ranks that use each other's memory finish a tile, with all lanes, before they begin the next.
    schedule.run(sharing.shares_tmp() ? 2 : 1, network.uses_windows, races);
  }
}

}  // namespace

Verdict verify(const PlanParts& plan, const VerifyOptions& options) {
  Verdict verdict;
  try {
    if (options.in_place && is_valid(plan.header.collective) &&
        !has_in_place(plan.header.collective)) {
      throw proof::Refuted{std::string(name(plan.header.collective)) + " has no in-place form"};
    }
    proof::Network network(plan, options.in_place);
    if (plan.header.format == Format::compressed && network.uses_windows) {
      throw proof::Refuted{"a compressed plan addresses another rank's memory"};
    }
    verdict.roundings = check_result(network, options);
    check_races(network);
    verdict.traffic = std::move(network.traffic);
    verdict.steps = network.steps;
    verdict.proved = true;
  } catch (const proof::Refuted& wrong) {
    verdict.story = wrong.story;
  } catch (const std::bad_alloc&) {
    verdict.story = "the plan is too large to be proved in the memory that there is";
  }
  return verdict;
}

Verdict verify(const Plan& plan, const VerifyOptions& options) {
  if (plan.header.ranks < 1 || plan.ranks.size() != static_cast<std::size_t>(plan.header.ranks)) {
    Verdict verdict;
    verdict.story =
        fmt::format("a plan for {} ranks has parts for {}", plan.header.ranks, plan.ranks.size());
    return verdict;
  }
  const auto part = [&](int rank) { return plan.ranks[static_cast<std::size_t>(rank)]; };
  return verify(PlanParts{plan.header, part}, options);
}

}  // namespace tutti
