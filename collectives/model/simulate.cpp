#include "collectives/model/simulate.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <limits>
#include <queue>

#include "collectives/needs.h"
#include "core/error.h"

namespace tutti {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

/// When the k-th message of a link is there, and when its slot is free again.
struct Link {
  std::vector<double> arrives, freed;
};

struct Lane {
  std::size_t step = 0, tile = 0;
};

struct Rank {
  std::vector<Lane> lanes;
  double wakes = 0;  // when it is looked at next; kNever: when somebody notifies it
  bool done = false;
};

/// Until when what was sent keeps it busy.
struct Wire {
  double out = 0, in = 0;
};

struct Core {
  int holder = -1;  // the rank that runs
  int last = -1;    // the one that ran last
  std::deque<int> waiting;
};

/// Ranks are looked at in the order of time, so all that happens before a moment is known by then.
class Simulation {
 public:
  Simulation(const Plan& plan, const StepCosts& costs, const SimulationOptions& options)
      : plan_(plan),
        costs_(costs),
        o_(options),
        n_(plan.ranks.size()),
        channels_(needs_of(plan).channels),
        links_(n_ * n_ * channels_),
        ranks_(n_),
        hosts_(options.hosts == nullptr ? Domains() : *options.hosts),
        wires_(index(hosts_.count())) {
    place_on_cores();
  }

  double run() {
    for (std::size_t r = 0; r < n_; ++r) {
      ranks_[r].lanes.resize(plan_.ranks[r].lanes.size());
      events_.emplace(0, static_cast<int>(r));
    }
    double end = 0;
    std::size_t done = 0;
    while (!events_.empty()) {
      const auto [now, r] = events_.top();
      events_.pop();
      Rank& rank = ranks_[index(r)];
      if (rank.done || rank.wakes != now) continue;  // it was moved to another time
      if (!take_core(r, now)) continue;
      if (advance(r, now)) continue;
      leave_core(r, now);
      if (!rank.done) continue;
      end = std::max(end, now);
      ++done;
    }
    if (done < n_) throw Error(ErrorCode::internal, "the simulated plan does not end");
    return end;
  }

 private:
  static std::size_t index(int i) { return static_cast<std::size_t>(i); }

  Link& link(std::size_t from, std::size_t to, std::uint8_t channel) {
    return links_[(from * n_ + to) * channels_ + channel];
  }
  Link& link_of(std::size_t self, const Operand& o, bool sends) {
    const std::size_t peer = index(o.rank);
    return sends ? link(self, peer, o.channel) : link(peer, self, o.channel);
  }

  void at(double time, int r) {
    ranks_[index(r)].wakes = time;
    if (time < kNever) events_.emplace(time, r);
  }
  /// Something that rank r may wait for happens at `time`.
  void notify(double time, int r) {
    if (time < ranks_[index(r)].wakes && !runs(r)) at(time, r);
  }
  Core& core_of(int r) { return cores_[core_of_rank_[index(r)]]; }
  void place_on_cores() {
    const std::size_t each = index(std::max(o_.cores / hosts_.count(), 1));
    cores_.resize(each * index(hosts_.count()));
    std::vector<std::size_t> ranks(wires_.size()), before(wires_.size());  // by host
    const auto host_of = [&](std::size_t r) {
      return index(hosts_.number_of(static_cast<int>(r)));
    };
    for (std::size_t r = 0; r < n_; ++r) ++ranks[host_of(r)];
    for (std::size_t r = 0; r < n_; ++r) {
      const std::size_t h = host_of(r);
      const std::size_t i = before[h]++;
      const bool in_turn = !o_.neighbours_share || ranks[h] <= each;
      core_of_rank_.push_back(each * h + (in_turn ? i % each : i * each / ranks[h]));
    }
  }
  bool runs(int r) { return core_of(r).holder == r; }

  /// Whether rank r runs now; else it waits for its core, or the core is about to come to it.
  bool take_core(int r, double now) {
    Core& core = core_of(r);
    if (core.holder == r) return true;
    if (core.holder >= 0) {
      core.waiting.push_back(r);
      ranks_[index(r)].wakes = -1;  // until leave_core()
      return false;
    }
    const bool other = core.last >= 0 && core.last != r;
    core.holder = core.last = r;
    if (!other) return true;
    at(now + o_.switch_ns, r);
    return false;
  }

  void leave_core(int r, double now) {
    Core& core = core_of(r);
    core.holder = -1;
    if (core.waiting.empty()) return;
    const int next = core.waiting.front();
    core.waiting.pop_front();
    at(now, next);
  }

  /// Does one step of rank r that can be done now. False if there is none.
  bool advance(int r, double now) {
    Rank& rank = ranks_[index(r)];
    double earliest = kNever;
    bool done = true;
    for (std::size_t l = 0; l < rank.lanes.size(); ++l) {
      const auto& steps = plan_.ranks[index(r)].lanes[l];
      if (steps.empty() || rank.lanes[l].tile == o_.tiles) continue;
      done = false;
      const Step& step = steps[rank.lanes[l].step];
      const double ready = ready_at(index(r), step);
      earliest = std::min(earliest, ready);
      if (ready > now) continue;
      const double end = now + costs_[index(r)][l][rank.lanes[l].step];
      const double wire =
          o_.wire_ns == nullptr ? 0 : (*o_.wire_ns)[index(r)][l][rank.lanes[l].step];
      perform(index(r), step, end, wire);
      if (++rank.lanes[l].step == steps.size()) {
        rank.lanes[l].step = 0;
        ++rank.lanes[l].tile;
      }
      at(end, r);
      return true;
    }
    rank.done = done;
    at(earliest, r);
    return false;
  }

  double ready_at(std::size_t self, const Step& step) {
    double ready = 0;
    const RankPlan& plan = plan_.ranks[self];
    for (const Operand& o : plan.sources(step)) {
      if (!o.is_link()) continue;
      const Link& l = link_of(self, o, false);
      const std::size_t next = l.freed.size();  // messages are freed in their order
      ready = std::max(ready, next < l.arrives.size() ? l.arrives[next] : kNever);
    }
    for (const Operand& o : plan.destinations(step)) {
      if (!o.is_link()) continue;
      const Link& l = link_of(self, o, true);
      const std::size_t next = l.arrives.size();
      if (next < o_.slots) continue;
      ready = std::max(ready, next - o_.slots < l.freed.size() ? l.freed[next - o_.slots] : kNever);
    }
    return ready;
  }

  static double pass(double& busy_until, double from, double ns) {
    return busy_until = std::max(busy_until, from) + ns;
  }

  void perform(std::size_t self, const Step& step, double end, double wire) {
    const RankPlan& plan = plan_.ranks[self];
    const int host = hosts_.number_of(static_cast<int>(self));
    const auto seen_by = [&](int rank) {
      if (hosts_.number_of(rank) != host) return end + o_.net_latency_ns;
      const bool far = o_.domains != nullptr && !o_.domains->near(static_cast<int>(self), rank);
      return end + (far ? o_.far_latency_ns : o_.latency_ns);
    };
    for (const Operand& o : plan.sources(step)) {
      if (!o.is_link()) continue;
      const double seen = seen_by(o.rank);
      link_of(self, o, false).freed.push_back(index(o.rank) == self ? end : seen);
      notify(seen, o.rank);
    }
    for (const Operand& o : plan.destinations(step)) {
      if (!o.is_link()) continue;
      double seen = seen_by(o.rank);
      if (const int there = hosts_.number_of(o.rank); there != host) {
        seen = o_.net_latency_ns + std::max(pass(wires_[index(host)].out, end, wire),
                                            pass(wires_[index(there)].in, end, wire));
      }
      link_of(self, o, true).arrives.push_back(index(o.rank) == self ? end : seen);
      notify(seen, o.rank);
    }
  }

  const Plan& plan_;
  const StepCosts& costs_;
  const SimulationOptions o_;
  std::size_t n_;
  const std::size_t channels_;
  std::vector<Link> links_;  // by sender, receiver, channel
  std::vector<Rank> ranks_;
  const Domains hosts_;
  std::vector<Wire> wires_;  // by host
  std::vector<Core> cores_;
  std::vector<std::size_t> core_of_rank_;
  using Event = std::pair<double, int>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
};

}  // namespace

double simulate(const Plan& plan, const StepCosts& costs, const SimulationOptions& options) {
  return Simulation(plan, costs, options).run();
}

}  // namespace tutti
