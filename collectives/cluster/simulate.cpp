// See simulate.h.
#include "collectives/cluster/simulate.h"

#include <algorithm>
#include <cstdint>
#include <queue>

#include "collectives/cluster/fair_share.h"
#include "collectives/cluster/prepared.h"
#include "core/error.h"

namespace tutti::cluster {
namespace {

/// Events so near each other are one moment, as they would be without rounding.
constexpr double kMoment = 1e-6;  // us

class Simulation {
 public:
  Simulation(const Cluster& cluster, const PartOf& part, const SimulateOptions& options)
      : c_(cluster), o_(options), p_(prepare(cluster, part, options)), share_(p_.rates) {}

  Simulated run() {
    const auto tiles = static_cast<std::size_t>(o_.tiles);
    running_.resize(p_.lanes.size() * tiles);
    arrived_.resize(p_.receivers.size() * tiles);
    taken_.resize(p_.receivers.size() * tiles);
    result_.moved.resize(p_.rates.size());
    std::size_t open = running_.size();
    for (std::size_t i = 0; i < running_.size(); ++i) {
      running_[i].step = p_.lanes[i % p_.lanes.size()].begin;
      advance(static_cast<int>(i), 0, open);
    }
    double now = 0;
    settle(now);
    for (forget_old(); !events_.empty(); forget_old()) {
      now = events_.top().time;
      while (!events_.empty() && events_.top().time <= now + kMoment) {
        const Event e = events_.top();
        events_.pop();
        if (e.flow >= 0) {
          if (is_current(e)) finish(e.flow, now, open);
        } else {
          ++arrived_[at(e.queue)];
          const int tile = e.queue / static_cast<int>(p_.receivers.size());
          const int lane = p_.receivers[at(e.queue) % p_.receivers.size()];
          if (lane >= 0) {
            advance(tile * static_cast<int>(p_.lanes.size()) + lane, now, open);
          }
        }
      }
      settle(now);
    }
    if (open > 0) throw Error(ErrorCode::internal, "the simulated plan does not end");
    result_.us = now;
    result_.unit = p_.unit;
    result_.names = p_.names;
    for (const double r : p_.rates) result_.capacities.push_back(r / 1000);
    return std::move(result_);
  }

 private:
  struct Running {
    std::uint32_t step = 0;
    int sending = 0;
  };
  struct Sending {
    int queue = 0, lane = 0, route = 0;
    double begin = 0, bytes = 0, rate = 0, since = 0;
  };
  struct Event {
    double time = 0;
    int flow = -1;
    std::uint32_t version = 0;
    int queue = 0;
    std::uint64_t number = 0;  // of equals the older one first
    friend bool operator>(const Event& a, const Event& b) {
      return a.time != b.time ? a.time > b.time : a.number > b.number;
    }
  };
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  void push(double time, int flow, std::uint32_t version, int queue) {
    events_.push({time, flow, version, queue, ++pushed_});
  }

  bool is_current(const Event& e) const {
    return e.flow < 0 || share_.is_current(e.flow, e.version);
  }

  /// Ends of flows that were foretold and have moved since are no moments.
  void forget_old() {
    while (!events_.empty() && !is_current(events_.top())) events_.pop();
  }

  void settle(double now) {
    for (const FairShare::Change& c : share_.update(now)) {
      push(c.ends, c.flow, c.version, 0);
      if (o_.record) note(c.flow, now, share_.rate(c.flow));
    }
  }

  void note(int flow, double now, double rate) {
    Sending& s = sending_[at(flow)];
    if (s.rate > 0 && now > s.since) {
      const PreparedLane& lane = p_.lanes[at(s.lane) % p_.lanes.size()];
      const Route& route = p_.routes[at(s.route)];
      result_.record.push_back({lane.rank, lane.lane, s.lane / static_cast<int>(p_.lanes.size()),
                                s.since, now, s.rate / 1000, route.way, route.links});
    }
    s.since = now;
    s.rate = rate;
  }

  /// Steps of a lane until one has to wait.
  void advance(int number, double now, std::size_t& open) {
    Running& running = running_[at(number)];
    const PreparedLane& lane = p_.lanes[at(number) % p_.lanes.size()];
    const int tile = number / static_cast<int>(p_.lanes.size());
    const int queues = tile * static_cast<int>(p_.receivers.size());
    while (running.sending == 0 && running.step < lane.end) {
      const PreparedStep& s = p_.steps[running.step];
      for (std::uint32_t i = 0; i < s.sources; ++i) {
        const std::size_t q = at(queues + p_.ends[s.first + i].queue);
        if (arrived_[q] <= taken_[q]) return;
      }
      for (std::uint32_t i = 0; i < s.sources; ++i) {
        ++taken_[at(queues + p_.ends[s.first + i].queue)];
      }
      const double bytes = static_cast<double>(s.chunks) * o_.block_bytes / o_.tiles;
      for (std::uint32_t i = 0; i < s.sends; ++i) {
        const PreparedEnd& end = p_.ends[s.first + s.sources + i];
        send(number, queues + end.queue, end.route, bytes, tile, now);
      }
      if (running.sending == 0) ++running.step;
    }
    if (running.sending == 0 && running.step == lane.end) {
      ++running.step;  // it has been counted
      --open;
    }
  }

  void send(int lane, int queue, int route, double bytes, int tile, double now) {
    if (route < 0 || bytes <= 0 || p_.routes[at(route)].links.empty()) {
      const double latency =
          route < 0 ? 0 : c_.latency(o_.protocol, p_.routes[at(route)].way, bytes);
      return push(now + latency, -1, 0, queue);
    }
    const Route& r = p_.routes[at(route)];
    const int flow = share_.start(now, bytes, r.links, tile);
    if (flow >= static_cast<int>(sending_.size())) sending_.resize(at(flow) + 1);
    sending_[at(flow)] = {queue, lane, route, now, bytes, 0, now};
    ++running_[at(lane)].sending;
    for (const int l : r.links) result_.moved[at(l)] += bytes;
  }

  void finish(int flow, double now, std::size_t& open) {
    if (o_.record) note(flow, now, 0);
    share_.end(flow);
    const Sending s = sending_[at(flow)];
    push(now + c_.latency(o_.protocol, p_.routes[at(s.route)].way, s.bytes), -1, 0, s.queue);
    Running& running = running_[at(s.lane)];
    if (--running.sending > 0) return;
    ++running.step;
    advance(s.lane, now, open);
  }

  const Cluster& c_;
  const SimulateOptions& o_;
  const PreparedPlan p_;
  std::vector<Running> running_;                // by tile and lane
  std::vector<std::uint32_t> arrived_, taken_;  // by tile and queue
  FairShare share_;
  std::vector<Sending> sending_;  // by flow
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t pushed_ = 0;
  Simulated result_;
};

}  // namespace

Simulated simulate(const Cluster& cluster, const PartOf& part, const SimulateOptions& options) {
  return Simulation(cluster, part, options).run();
}

}  // namespace tutti::cluster
