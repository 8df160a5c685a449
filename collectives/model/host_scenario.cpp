// See host_scenario.h.
#include "collectives/model/host_scenario.h"

#include <algorithm>

#include "collectives/needs.h"
#include "core/error.h"

namespace tutti {
namespace {

class HostScenario {
 public:
  HostScenario(const Plan& plan, const StepCosts& costs, const SimulationOptions& options)
      : plan_(plan),
        costs_(costs),
        o_(options),
        n_(plan.ranks.size()),
        channels_(needs_of(plan).channels),
        hosts_(options.hosts == nullptr ? kOneHost : *options.hosts),
        queue_numbers_(n_ * n_ * channels_, -1) {}

  Scenario make() {
    s_.routes = {{}, {o_.latency_ns}, {o_.far_latency_ns}};
    const int hosts = hosts_.count();
    s_.wires = hosts > 1 ? 2 * hosts : 0;
    for (int out = 0; hosts > 1 && out < hosts; ++out) {
      for (int in = 0; in < hosts; ++in) {
        Scenario::Route& route = s_.routes.emplace_back();
        route.latency = o_.net_latency_ns;
        route.wire_out = 2 * out;
        route.wire_in = 2 * in + 1;
      }
    }
    s_.switching = o_.switch_ns;
    s_.slots = static_cast<std::uint32_t>(std::min<std::size_t>(o_.slots, kMostSlots));
    s_.in_turn = static_cast<std::uint32_t>(o_.tiles);
    for (std::size_t r = 0; r < n_; ++r) add(r);
    place_on_cores(s_, o_);
    return std::move(s_);
  }

 private:
  static constexpr std::size_t kMostSlots = 1 << 30;
  inline static const Domains kOneHost{};

  void add(std::size_t r) {
    const RankPlan& plan = plan_.ranks[r];
    s_.workers.push_back({static_cast<std::uint32_t>(s_.lanes.size()),
                          static_cast<std::uint32_t>(plan.lanes.size())});
    for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
      const auto begin = static_cast<std::uint32_t>(s_.steps.size());
      for (std::size_t i = 0; i < plan.lanes[l].size(); ++i) {
        const Step& step = plan.lanes[l][i];
        Scenario::Step& made = s_.steps.emplace_back();
        made.first = static_cast<std::uint32_t>(s_.ends.size());
        made.cost = static_cast<std::uint32_t>(s_.costs.size());
        s_.costs.push_back(
            {costs_[r][l][i], 0, o_.messages == nullptr ? MessageCost{} : (*o_.messages)[r][l][i]});
        for (const Operand& o : plan.sources(step)) {
          if (!o.is_link()) continue;
          s_.ends.push_back({queue(o.rank, static_cast<int>(r), o.channel), 0});
          ++made.sources;
        }
        for (const Operand& o : plan.destinations(step)) {
          if (!o.is_link()) continue;
          s_.ends.push_back(
              {queue(static_cast<int>(r), o.rank, o.channel), route(static_cast<int>(r), o.rank)});
          ++made.sends;
        }
      }
      s_.lanes.push_back({begin, static_cast<std::uint32_t>(s_.steps.size())});
    }
  }

  int route(int from, int to) const {
    if (from == to) return 0;
    if (!hosts_.near(from, to)) {
      return 3 + hosts_.number_of(from) * hosts_.count() + hosts_.number_of(to);
    }
    return o_.domains == nullptr || o_.domains->near(from, to) ? 1 : 2;
  }

  int queue(int from, int to, std::uint8_t channel) {
    int& number =
        queue_numbers_[(static_cast<std::size_t>(from) * n_ + static_cast<std::size_t>(to)) *
                           channels_ +
                       channel];
    if (number < 0) {
      number = static_cast<int>(s_.queues.size());
      s_.queues.push_back({from, to, s_.routes[static_cast<std::size_t>(route(from, to))].latency});
    }
    return number;
  }

  const Plan& plan_;
  const StepCosts& costs_;
  const SimulationOptions& o_;
  const std::size_t n_, channels_;
  const Domains& hosts_;
  std::vector<int> queue_numbers_;  // by sender, receiver, channel; -1: not used yet
  Scenario s_;
};

}  // namespace

void place_on_cores(Scenario& scenario, const SimulationOptions& o) {
  const Domains one, &hosts = o.hosts == nullptr ? one : *o.hosts;
  const int each = std::max(o.cores / hosts.count(), 1);
  scenario.cores = each * hosts.count();
  const int n = static_cast<int>(scenario.workers.size());
  std::vector<int> ranks(static_cast<std::size_t>(hosts.count())), before = ranks;  // by host
  for (int r = 0; r < n; ++r) ++ranks[static_cast<std::size_t>(hosts.number_of(r))];
  for (int r = 0; r < n; ++r) {
    const int h = hosts.number_of(r);
    const int all = ranks[static_cast<std::size_t>(h)];
    const int i = before[static_cast<std::size_t>(h)]++;
    const bool in_turn = !o.neighbours_share || all <= each;
    scenario.workers[static_cast<std::size_t>(r)].core =
        each * h + (in_turn ? i % each : i * each / all);
  }
}

Scenario host_scenario(const Plan& plan, const StepCosts& costs, const SimulationOptions& options) {
  return HostScenario(plan, costs, options).make();
}

double time_of(const Scenario& scenario) {
  const Trace trace = simulate(scenario);
  if (trace.unfinished > 0) throw Error(ErrorCode::internal, "the simulated plan does not end");
  return trace.end;
}

double simulate(const Plan& plan, const StepCosts& costs, const SimulationOptions& options) {
  return time_of(host_scenario(plan, costs, options));
}

}  // namespace tutti
