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
  std::size_t sent = 0;
  std::vector<double> arrives, freed;
};

/// A message from another host that its receiver has yet to take.
struct Coming {
  Link* link = nullptr;
  std::size_t number = 0;
  double begins = 0, arrives = 0;
  double work = 0, left = 0;  // the receiver's core's
  double last = 0;            // that cannot be done before all has arrived
};

struct Lane {
  std::size_t step = 0, tile = 0;
};

struct Rank {
  std::vector<Lane> lanes;
  double wakes = 0;  // when it is looked at next; kNever: when somebody notifies it
  bool done = false;
  std::vector<Coming> coming;
};

/// A message that has left its host for another one's wire.
struct Leaving {
  double begins = 0, ends = 0;  // leaving
  MessageCost cost;
  int to = 0;
  Link* link = nullptr;
  friend bool operator>(const Leaving& a, const Leaving& b) { return a.begins > b.begins; }
};

/// Until when what was sent keeps it busy.
struct Wire {
  double out = 0, in = 0;
};

struct Core {
  int holder = -1;  // the rank that runs
  int last = -1;    // the one that ran last
  double idle_since = 0;
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
    while (!events_.empty() || !leaving_.empty()) {
      if (events_.empty() || (!leaving_.empty() && leaving_.top().begins <= events_.top().first)) {
        const Leaving message = leaving_.top();
        leaving_.pop();
        arrive(message);
        continue;
      }
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
      const MessageCost message =
          o_.messages == nullptr ? MessageCost{} : (*o_.messages)[index(r)][l][rank.lanes[l].step];
      const double taken = take_in(index(r), step, now);
      const double end =
          perform(index(r), step, taken + costs_[index(r)][l][rank.lanes[l].step], message);
      core_of(r).idle_since = end;
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
      const std::size_t next = l.sent;
      if (next < o_.slots) continue;
      ready = std::max(ready, next - o_.slots < l.freed.size() ? l.freed[next - o_.slots] : kNever);
    }
    return ready;
  }

  /// While it has waited, a rank has received what came; what `step` takes, it does to the end.
  double take_in(std::size_t self, const Step& step, double now) {
    std::vector<Coming>& coming = ranks_[self].coming;
    if (coming.empty()) return now;
    double free = core_of(static_cast<int>(self)).idle_since;
    for (Coming& c : coming) {
      const double from = std::max(free, c.begins);
      const double most = c.work - c.last;  // up to `now`
      const double here = now < c.arrives ? most * (now - c.begins) / (c.arrives - c.begins) : most;
      const double done = std::min(now - from, here - (c.work - c.left));
      if (done <= 0) continue;
      c.left -= done;
      free = from + done;
    }
    for (const Operand& o : plan_.ranks[self].sources(step)) {
      if (!o.is_link()) continue;
      const Link& l = link_of(self, o, false);
      const auto taken = std::ranges::find_if(
          coming, [&](const Coming& c) { return c.link == &l && c.number == l.freed.size(); });
      if (taken == coming.end()) continue;
      now += taken->left;
      coming.erase(taken);
    }
    return now;
  }

  /// A message to another host goes out at `now`.
  void leave(int from, int to, double now, const MessageCost& m, Link& link) {
    double& busy = wires_[index(hosts_.number_of(from))].out;
    const double begins = std::max(busy, now + m.first * m.send);
    busy = begins + m.wire;
    leaving_.push({begins, std::max(busy, now + m.send + m.last * m.wire), m, to, &link});
  }

  /// Messages come in the order in which they leave, whoever has sent them.
  void arrive(const Leaving& m) {
    double& busy = wires_[index(hosts_.number_of(m.to))].in;
    const double begins = std::max(busy, m.begins);
    busy = begins + m.cost.wire;
    Coming c;
    c.link = m.link;
    c.number = m.link->arrives.size();
    c.begins = begins + m.cost.last * m.cost.wire + o_.net_latency_ns;
    c.arrives = std::max(busy, m.ends) + o_.net_latency_ns;
    c.work = c.left = m.cost.receive;
    c.last = m.cost.last * m.cost.receive;
    m.link->arrives.push_back(c.arrives);
    if (c.work > 0) ranks_[index(m.to)].coming.push_back(c);
    notify(c.arrives, m.to);
  }

  /// Returns when the rank goes on: a message to another host keeps it busy after the step.
  double perform(std::size_t self, const Step& step, double end, const MessageCost& message) {
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
    double goes_on = end;
    for (const Operand& o : plan.destinations(step)) {
      if (!o.is_link()) continue;
      Link& link = link_of(self, o, true);
      ++link.sent;
      if (hosts_.number_of(o.rank) != host) {
        leave(static_cast<int>(self), o.rank, goes_on, message, link);
        goes_on += message.send;
        continue;
      }
      const double seen = seen_by(o.rank);
      link.arrives.push_back(index(o.rank) == self ? end : seen);
      notify(seen, o.rank);
    }
    return goes_on;
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
  std::priority_queue<Leaving, std::vector<Leaving>, std::greater<>> leaving_;
};

}  // namespace

double simulate(const Plan& plan, const StepCosts& costs, const SimulationOptions& options) {
  return Simulation(plan, costs, options).run();
}

}  // namespace tutti
