// What a seed plans: see history.h.
#include <algorithm>

#include "tests/simulator/history.h"

namespace tutti::simulator {

Plan plan_of(std::uint64_t seed) {
  Random random(seed * 0x9e3779b97f4a7c15U + 1);
  Plan plan;
  plan.seed = seed;
  plan.ranks = static_cast<int>(random.between(2, 8));
  constexpr int kOfAHost[] = {1, 1, 2, 3, 8};
  plan.ranks_of_a_host = kOfAHost[random.below(std::size(kOfAHost))];
  const auto steps = random.between(1, 4);
  for (std::uint64_t s = 0; s < steps; ++s) {
    Step step{static_cast<Step::Kind>(random.below(8)), 1};
    constexpr std::uint32_t kCounts[] = {1, 3, 100, 2000, 20000};
    step.count = kCounts[random.below(std::size(kCounts))];
    plan.steps.push_back(step);
  }
  if (random.once_in(4)) plan.weather.lost_once_in = 200;
  if (random.once_in(4)) plan.weather.most_delay = 5 * kMillisecond;
  if (random.once_in(4)) plan.weather.most_buffer = 32 << 10;
  plan.encrypted = random.once_in(8);
  plan.by_handles = random.once_in(3);
  constexpr const char* kAlgorithms[] = {"", "ring", "tree", "recursive_doubling"};
  plan.algorithm = kAlgorithms[random.below(std::size(kAlgorithms))];
  const std::uint64_t faults = random.once_in(3) ? 0 : random.between(1, 3);
  for (std::uint64_t f = 0; f < faults; ++f) {
    Fault fault{};
    fault.kind = static_cast<Fault::Kind>(random.below(8));
    // A calm history takes 1 to 3 ms until all have left.
    fault.at = random.below(random.once_in(8) ? 300 * kMillisecond : 3 * kMillisecond);
    fault.rank = static_cast<int>(random.below(static_cast<std::uint64_t>(plan.ranks)));
    fault.other = static_cast<int>(random.below(static_cast<std::uint64_t>(plan.ranks - 1)));
    if (fault.other >= fault.rank) ++fault.other;
    fault.lasts = random.below(random.once_in(2) ? 100 * kMillisecond : 8 * kSecond);
    plan.faults.push_back(fault);
  }
  return plan;
}

std::string text_of(const Plan& plan) {
  std::string text = "seed " + std::to_string(plan.seed) + ": " + std::to_string(plan.ranks) +
                     " ranks, " + std::to_string(plan.ranks_of_a_host) + " of a host" +
                     (plan.encrypted ? ", encrypted" : "") +
                     (plan.by_handles ? ", by handles" : "") +
                     (plan.algorithm.empty() ? "" : ", " + plan.algorithm) + "; steps:";
  constexpr const char* kSteps[] = {"all_reduce", "broadcast", "barrier", "started all_reduce",
                                    "messages",   "split",     "window",  "refused window"};
  for (const Step& s : plan.steps) {
    text += std::string(" ") + kSteps[static_cast<int>(s.kind)] + " of " + std::to_string(s.count) +
            ",";
  }
  text += " faults:";
  constexpr const char* kFaults[] = {"kill", "power off", "stop",  "reset",
                                     "cut",  "half cut",  "clock", "restart"};
  for (const Fault& f : plan.faults) {
    char line[160];
    std::snprintf(line, sizeof line, " %s %d (%d) at %.6f s for %.3f s,",
                  kFaults[static_cast<int>(f.kind)], f.rank, f.other,
                  static_cast<double>(f.at) * 1e-9, static_cast<double>(f.lasts) * 1e-9);
    text += line;
  }
  return text;
}

}  // namespace tutti::simulator
