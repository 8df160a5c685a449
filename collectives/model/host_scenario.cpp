// See host_scenario.h.
#include "collectives/model/host_scenario.h"

#include <algorithm>
#include <unordered_map>

#include "core/error.h"

namespace tutti {
namespace {

class HostScenario {
 public:
  HostScenario(const Plan& plan, const StepCosts& costs, const SimulationOptions& options)
      : plan_(plan),
        costs_(costs),
        o_(options),
        hosts_(options.hosts == nullptr ? kOneHost : *options.hosts) {}

  Scenario make() {
    s_.routes = {{}, {o_.latency_ns}, {o_.far_latency_ns}};
    const int hosts = hosts_.count();
    s_.wires = hosts > 1 ? 2 * hosts : 0;
    for (int out = 0; hosts > 1 && out < hosts; ++out) {
      for (int in = 0; in < hosts; ++in) {
        Scenario::Route& route = s_.routes.emplace_back();
        route.latency = o_.net_latency_ns;
        route.wires = {2 * out, 2 * in + 1, o_.net_latency_ns};
      }
    }
    s_.switching = o_.switch_ns;
    s_.slots = static_cast<std::uint32_t>(std::min<std::size_t>(o_.slots, kMostSlots));
    s_.in_turn = static_cast<std::uint32_t>(o_.tiles);
    for (std::size_t r = 0; r < plan_.ranks.size(); ++r) add(r);
    if (!lanes_apart()) place_on_cores(s_, o_);
    return std::move(s_);
  }

 private:
  static constexpr std::size_t kMostSlots = 1 << 30;
  inline static const Domains kOneHost{};

  bool lanes_apart() const { return o_.cores == SimulationOptions::kForEachLane; }
  void add_worker(std::size_t lanes) {
    s_.workers.push_back(
        {static_cast<std::uint32_t>(s_.lanes.size()), static_cast<std::uint32_t>(lanes)});
  }

  void add(std::size_t r) {
    const RankPlan& plan = plan_.ranks[r];
    const int rank = static_cast<int>(r);
    if (!lanes_apart()) add_worker(plan.lanes.size());
    for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
      if (lanes_apart()) add_worker(1);
      const int worker = static_cast<int>(s_.workers.size()) - 1;
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
          const int q = queue(o.rank, rank, o.channel);
          s_.queues[static_cast<std::size_t>(q)].receiver = worker;
          s_.ends.push_back({q, 0});
          ++made.sources;
        }
        for (const Operand& o : plan.destinations(step)) {
          if (!o.is_link()) continue;
          const int q = queue(rank, o.rank, o.channel);
          s_.queues[static_cast<std::size_t>(q)].sender = worker;
          s_.ends.push_back({q, route(rank, o.rank)});
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
    const std::uint64_t key =
        static_cast<std::uint64_t>(from) << 40U | static_cast<std::uint64_t>(to) << 8U | channel;
    const auto [found, is_new] = queue_numbers_.emplace(key, static_cast<int>(s_.queues.size()));
    if (is_new) {
      const double way = s_.routes[static_cast<std::size_t>(route(from, to))].latency;
      s_.queues.push_back({-1, -1, way});
    }
    return found->second;
  }

  const Plan& plan_;
  const StepCosts& costs_;
  const SimulationOptions& o_;
  const Domains& hosts_;
  std::unordered_map<std::uint64_t, int> queue_numbers_;  // by sender, receiver, channel
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
  const Course course = simulate(scenario);
  if (course.unfinished > 0) {
    throw Error(ErrorCode::internal,
                "the simulated plan does not end; `tutti plan verify` says of each algorithm why");
  }
  return course.end;
}

double simulate(const Plan& plan, const StepCosts& costs, const SimulationOptions& options) {
  return time_of(host_scenario(plan, costs, options));
}

}  // namespace tutti
