#include "collectives/draw/schedule.h"

#include <algorithm>

#include "collectives/model/host_scenario.h"

namespace tutti::drawing {
namespace {

Scenario scenario_of(const Plan& plan) {
  StepCosts costs;
  for (const RankPlan& rank : plan.ranks) {
    auto& of_rank = costs.emplace_back();
    for (const auto& lane : rank.lanes) {
      auto& of_lane = of_rank.emplace_back();
      for (const Step& step : lane) of_lane.push_back(step.count == 0 ? kSignalStep : kDataStep);
    }
  }
  SimulationOptions options;
  options.slots = std::max(plan.header.slots, 1U);
  options.cores = SimulationOptions::kForEachLane;
  Scenario scenario = host_scenario(plan, costs, options);
  for (Scenario::Route& route : scenario.routes) route.latency = kFlight;
  return scenario;
}

}  // namespace

Schedule make_schedule(const Plan& plan) {
  const Scenario scenario = scenario_of(plan);
  const Course course = simulate(scenario, true);
  Schedule made;
  made.steps = scenario.steps.size();
  std::vector<std::vector<StepId>> sent(scenario.queues.size()), received = sent;
  std::size_t number = 0;
  for (std::uint32_t r = 0; r < plan.ranks.size(); ++r) {
    auto& of_rank = made.times.emplace_back();
    for (std::uint32_t l = 0; l < plan.ranks[r].lanes.size(); ++l) {
      auto& of_lane = of_rank.emplace_back();
      for (std::uint32_t i = 0; i < plan.ranks[r].lanes[l].size(); ++i, ++number) {
        const StepTime& time = of_lane.emplace_back(course.steps[number]);
        made.end = std::max(made.end, time.end);
        made.never_start += time.never() ? 1 : 0;
        const Scenario::Step& step = scenario.steps[number];
        for (std::uint32_t e = 0; e < std::uint32_t{step.sources} + step.sends; ++e) {
          const auto queue = static_cast<std::size_t>(scenario.ends[step.first + e].queue);
          (e < step.sources ? received : sent)[queue].push_back({r, l, i});
        }
      }
    }
  }
  for (std::size_t q = 0; q < sent.size(); ++q) {
    for (std::size_t k = 0; k < std::min(sent[q].size(), received[q].size()); ++k) {
      if (!made.at(received[q][k]).never()) made.messages.push_back({sent[q][k], received[q][k]});
    }
  }
  return made;
}

}  // namespace tutti::drawing
