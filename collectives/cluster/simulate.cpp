// See simulate.h.
#include "collectives/cluster/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <queue>
#include <unordered_map>

#include "collectives/cluster/fair_share.h"
#include "core/error.h"

namespace tutti::cluster {
namespace {

/// Events so near each other are one moment, as they would be without rounding.
constexpr double kMoment = 1e-6;  // us
/// Leaves with more ranks are looked at one host at a time.
constexpr int kMostUnitRanks = 1024;

/// A step as the simulation needs it: ranges of Simulation::ends_.
struct SimulatedStep {
  std::uint32_t first = 0;
  std::uint16_t sources = 0, sends = 0;
  float chunks = 0;
};
/// A message's end.
struct End {
  int queue = 0;
  int route = 0;  // of sends
};

struct LanePlan {
  std::uint32_t begin = 0, end = 0;  // steps
  int rank = 0, lane = 0;
};

class Simulation {
 public:
  Simulation(const Cluster& cluster, const PartOf& part, const SimulateOptions& options)
      : c_(cluster), part_(part), o_(options), k_(cluster.ranks_of_a_host()) {
    unit_ = options.unit > 0 ? options.unit : smallest_unit();
    units_ = c_.hosts() / unit_;
    lay_out_links();
    for (int r = 0; r < unit_ * k_; ++r) add(part_(r), r);
    rates_ = rates();
    share_ = std::make_unique<FairShare>(rates_);
  }

  Simulated run() {
    const auto tiles = static_cast<std::size_t>(o_.tiles);
    lanes_running_.resize(lanes_.size() * tiles);
    arrived_.resize(queues_.size() * tiles);
    taken_.resize(queues_.size() * tiles);
    std::size_t open = lanes_running_.size();
    for (std::size_t i = 0; i < lanes_running_.size(); ++i) {
      lanes_running_[i].step = lanes_[i % lanes_.size()].begin;
      advance(static_cast<int>(i), 0, open);
    }
    double now = 0;
    settle(now);
    while (!events_.empty()) {
      now = events_.top().time;
      while (!events_.empty() && events_.top().time <= now + kMoment) {
        const Event e = events_.top();
        events_.pop();
        if (e.flow >= 0) {
          if (share_->is_current(e.flow, e.version)) finish(e.flow, now, open);
        } else {
          ++arrived_[at(e.queue)];
          const int tile = e.queue / static_cast<int>(queues_.size());
          const int lane = queues_[at(e.queue) % queues_.size()].lane;
          if (lane >= 0) {
            advance(tile * static_cast<int>(lanes_.size()) + lane, now, open);
          }
        }
      }
      settle(now);
    }
    if (open > 0) throw Error(ErrorCode::internal, "the simulated plan does not end");
    result_.us = now;
    result_.unit = unit_;
    result_.names = names_;
    for (const double r : rates_) result_.capacities.push_back(r / 1000);
    return std::move(result_);
  }

 private:
  struct Queue {
    int lane = -1;  // that receives
  };
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

  int host_of(int rank) const { return rank / k_; }

  /// One host, or the hosts of one leaf where those share a narrow way up, if these stand for all.
  int smallest_unit() const {
    const topology::Network& n = c_.network();
    const bool leaves = n.leaf > 0 && n.leaf < c_.hosts() && n.oversubscription > 1;
    const int unit = leaves ? n.leaf : 1;
    if (unit * k_ > kMostUnitRanks || c_.hosts() % unit != 0) return c_.hosts();
    if (c_.hosts() <= 2 * unit) return c_.hosts();
    for (int r = 0; r < k_; ++r) {
      const RankPlan first = part_(r);
      for (const int h : {1, c_.hosts() / unit / 2, c_.hosts() / unit - 1}) {
        if (!same(first, part_(h * unit * k_ + r), h * unit)) return c_.hosts();
      }
    }
    return unit;
  }

  /// Whether `b` is `a` for ranks that are `hosts` further on. Chunks may differ: they are as
  /// large.
  bool same(const RankPlan& a, const RankPlan& b, int hosts) const {
    if (a.lanes.size() != b.lanes.size() || a.operands.size() != b.operands.size()) return false;
    const int n = c_.ranks();
    for (std::size_t l = 0; l < a.lanes.size(); ++l) {
      if (!std::ranges::equal(a.lanes[l], b.lanes[l], [](const Step& x, const Step& y) {
            return x.destinations == y.destinations && x.sources == y.sources && x.count == y.count;
          })) {
        return false;
      }
    }
    return std::ranges::equal(a.operands, b.operands, [&](const Operand& x, const Operand& y) {
      return x.is_link() == y.is_link() &&
             (!x.is_link() || ((x.rank + hosts * k_) % n == y.rank && x.channel == y.channel));
    });
  }

  void lay_out_links() {
    const auto& of_host = c_.capacities();
    for (int h = 0; h < unit_; ++h) {
      capacities_.insert(capacities_.end(), of_host.begin(), of_host.end());
      if (!o_.record) continue;
      for (const std::string& n : c_.names()) {
        names_.push_back(unit_ == 1 ? n : fmt::format("h{} {}", h, n));
      }
    }
    const topology::Network& n = c_.network();
    leaf_ = n.leaf > 0 && n.leaf < c_.hosts() ? n.leaf : 0;
    if (unit_ < leaf_) leaf_ = 0;
    if (leaf_ == 0) return;
    first_leaf_ = static_cast<int>(capacities_.size());
    for (int l = 0; l < (unit_ + leaf_ - 1) / leaf_; ++l) {
      for (const char* way : {"up", "down"}) {
        capacities_.push_back(c_.leaf_bandwidth());
        if (o_.record) names_.push_back(fmt::format("leaf{} {}", l, way));
      }
    }
  }

  /// Bytes of data per us.
  std::vector<double> rates() const {
    std::vector<double> all;
    const std::size_t each = c_.capacities().size(), hosts = each * at(unit_);
    for (std::size_t l = 0; l < capacities_.size(); ++l) {
      const double data = l < hosts ? c_.data_rate(l % each, o_.protocol)
                                    : capacities_[l] * c_.constants().data(o_.protocol);
      all.push_back(data * 1000);
    }
    return all;
  }

  int queue(int from, int to, int hosts_on, int channel) {
    const std::uint64_t key =
        ((static_cast<std::uint64_t>(from) * static_cast<std::uint64_t>(unit_ * k_) +
          static_cast<std::uint64_t>(to)) *
             static_cast<std::uint64_t>(units_) +
         static_cast<std::uint64_t>(hosts_on)) *
            256 +
        static_cast<std::uint64_t>(channel);
    const auto [found, is_new] = queue_numbers_.emplace(key, static_cast<int>(queues_.size()));
    if (is_new) queues_.emplace_back();
    return found->second;
  }

  /// From a rank that is looked at to any; numbered by who they are.
  int route(int from, int to) {
    const int host = host_of(from), other = host_of(to);
    const bool near = host == other;
    const std::uint64_t key =
        static_cast<std::uint64_t>(from) << 32U | static_cast<std::uint32_t>(to);
    const auto [found, is_new] = route_numbers_.emplace(key, static_cast<int>(routes_.size()));
    if (!is_new) return found->second;
    Route r = near ? c_.inside(from % k_, to % k_) : c_.across(from % k_, to % k_);
    const int each = static_cast<int>(c_.capacities().size());
    const int there = other % unit_;
    for (int& l : r.links) l += host * each;
    for (const int l : r.far) r.links.push_back(l + there * each);
    if (!near && leaf_ > 0 && host / leaf_ != other / leaf_) {
      r.links.push_back(first_leaf_ + 2 * (host / leaf_));
      r.links.push_back(first_leaf_ + 2 * (there / leaf_) + 1);
    }
    // A link counts once, and what is as wide as a processor's inside not at all.
    std::ranges::sort(r.links);
    r.links.erase(std::unique(r.links.begin(), r.links.end()), r.links.end());
    r.far.clear();
    routes_.push_back(std::move(r));
    return found->second;
  }

  void add(const RankPlan& plan, int rank) {
    const int here = rank / k_ / unit_;
    for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
      LanePlan lane;
      lane.begin = static_cast<std::uint32_t>(steps_.size());
      lane.rank = rank;
      lane.lane = static_cast<int>(l);
      const int number = static_cast<int>(lanes_.size());
      for (const Step& step : plan.lanes[l]) {
        SimulatedStep s;
        s.first = static_cast<std::uint32_t>(ends_.size());
        s.chunks = static_cast<float>(step.count) / static_cast<float>(plan.header.pieces);
        for (const Operand& o : plan.sources(step)) {
          refuse_windows(o);
          if (!o.is_link()) continue;
          const int unit = host_of(o.rank) / unit_;
          const int q =
              queue(o.rank % (unit_ * k_), rank, (here - unit + units_) % units_, o.channel);
          queues_[at(q)].lane = number;
          ends_.push_back({q, -1});
          ++s.sources;
        }
        for (const Operand& o : plan.destinations(step)) {
          refuse_windows(o);
          if (!o.is_link()) continue;
          const int unit = host_of(o.rank) / unit_;
          const int q =
              queue(rank, o.rank % (unit_ * k_), (unit - here + units_) % units_, o.channel);
          ends_.push_back({q, o.rank == rank ? -1 : route(rank, o.rank)});
          ++s.sends;
        }
        if (s.sources > 0 || s.sends > 0) steps_.push_back(s);
      }
      lane.end = static_cast<std::uint32_t>(steps_.size());
      if (lane.end > lane.begin) lanes_.push_back(lane);
    }
  }

  static void refuse_windows(const Operand& o) {
    if (!o.is_remote()) return;
    throw Error(ErrorCode::invalid_argument,
                "a plan that addresses other ranks' memory is not simulated on clusters");
  }

  void push(double time, int flow, std::uint32_t version, int queue) {
    events_.push({time, flow, version, queue, ++pushed_});
  }

  void settle(double now) {
    for (const FairShare::Change& c : share_->update(now)) {
      push(c.ends, c.flow, c.version, 0);
      if (o_.record) note(c.flow, now, share_->rate(c.flow));
    }
  }

  void note(int flow, double now, double rate) {
    Sending& s = sending_[at(flow)];
    if (s.rate > 0 && now > s.since) {
      const LanePlan& lane = lanes_[at(s.lane) % lanes_.size()];
      const Route& route = routes_[at(s.route)];
      result_.record.push_back({lane.rank, lane.lane, s.lane / static_cast<int>(lanes_.size()),
                                s.since, now, s.rate / 1000, route.way, route.links});
    }
    s.since = now;
    s.rate = rate;
  }

  /// Steps of a lane until one has to wait.
  void advance(int number, double now, std::size_t& open) {
    Running& running = lanes_running_[at(number)];
    const LanePlan& lane = lanes_[at(number) % lanes_.size()];
    const int tile = number / static_cast<int>(lanes_.size());
    const int queues = tile * static_cast<int>(queues_.size());
    while (running.sending == 0 && running.step < lane.end) {
      const SimulatedStep& s = steps_[running.step];
      for (std::uint32_t i = 0; i < s.sources; ++i) {
        const std::size_t q = at(queues + ends_[s.first + i].queue);
        if (arrived_[q] <= taken_[q]) return;
      }
      for (std::uint32_t i = 0; i < s.sources; ++i) {
        ++taken_[at(queues + ends_[s.first + i].queue)];
      }
      const double bytes = static_cast<double>(s.chunks) * o_.block_bytes / o_.tiles;
      for (std::uint32_t i = 0; i < s.sends; ++i) {
        const End& end = ends_[s.first + s.sources + i];
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
    if (route < 0 || bytes <= 0 || routes_[at(route)].links.empty()) {
      const double latency = route < 0 ? 0 : c_.latency(o_.protocol, routes_[at(route)].way, bytes);
      return push(now + latency, -1, 0, queue);
    }
    const Route& r = routes_[at(route)];
    const int flow = share_->start(now, bytes, r.links, tile);
    if (flow >= static_cast<int>(sending_.size())) sending_.resize(at(flow) + 1);
    sending_[at(flow)] = {queue, lane, route, now, bytes, 0, now};
    ++lanes_running_[at(lane)].sending;
    if (o_.record) {
      result_.moved.resize(capacities_.size());
      for (const int l : r.links) result_.moved[at(l)] += bytes;
    }
  }

  void finish(int flow, double now, std::size_t& open) {
    if (o_.record) note(flow, now, 0);
    share_->end(flow);
    const Sending s = sending_[at(flow)];
    push(now + c_.latency(o_.protocol, routes_[at(s.route)].way, s.bytes), -1, 0, s.queue);
    Running& running = lanes_running_[at(s.lane)];
    if (--running.sending > 0) return;
    ++running.step;
    advance(s.lane, now, open);
  }

  const Cluster& c_;
  const PartOf& part_;
  const SimulateOptions& o_;
  int k_, unit_ = 1, units_ = 1;
  int leaf_ = 0, first_leaf_ = 0;
  std::vector<double> capacities_, rates_;
  std::vector<std::string> names_;
  std::vector<LanePlan> lanes_;
  std::vector<SimulatedStep> steps_;
  std::vector<End> ends_;
  std::vector<Queue> queues_;
  std::unordered_map<std::uint64_t, int> queue_numbers_, route_numbers_;
  std::vector<Route> routes_;
  std::vector<Running> lanes_running_;          // by tile and lane
  std::vector<std::uint32_t> arrived_, taken_;  // by tile and queue
  std::unique_ptr<FairShare> share_;
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
