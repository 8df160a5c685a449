// See simulate.h.
#include "collectives/cluster/simulate.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>

#include "core/error.h"

namespace tutti::cluster {
namespace {

/// Leaves with more ranks are looked at one host at a time.
constexpr int kMostUnitRanks = 1024;
/// Events so near each other are one moment, as they would be without rounding.
constexpr double kMoment = 1e-6;  // us
/// The route of what stays where it is.
constexpr int kStays = 0;

class ScenarioMaker {
 public:
  ScenarioMaker(const Cluster& cluster, const PartOf& part, const SimulateOptions& options)
      : c_(cluster), part_(part), o_(options), k_(cluster.ranks_of_a_host()) {
    unit_ = options.unit > 0 ? options.unit : smallest_unit();
    units_ = c_.hosts() / unit_;
  }

  ClusterScenario make() {
    p_.unit = unit_;
    s_.moment = kMoment;
    s_.routes.emplace_back();
    p_.ways.emplace_back();
    lay_out_links();
    for (int r = 0; r < unit_ * k_; ++r) add(part_(r), r);
    for (int tile = 1; tile < o_.tiles; ++tile) repeat(tile);
    s_.rates = rates();
    return std::move(p_);
  }

 private:
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
        p_.names.push_back(unit_ == 1 ? n : fmt::format("h{} {}", h, n));
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
        if (o_.record) p_.names.push_back(fmt::format("leaf{} {}", l, way));
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
    const auto [found, is_new] = queue_numbers_.emplace(key, static_cast<int>(s_.queues.size()));
    if (is_new) s_.queues.emplace_back();
    return found->second;
  }

  /// The route from a rank that is looked at to any rank; each pair of ranks has its own number.
  int route(int from, int to) {
    const int host = host_of(from), other = host_of(to);
    const bool near = host == other;
    const std::uint64_t key =
        static_cast<std::uint64_t>(from) << 32U | static_cast<std::uint32_t>(to);
    const auto [found, is_new] = route_numbers_.emplace(key, static_cast<int>(s_.routes.size()));
    if (!is_new) return found->second;
    const GpuRoute on_host = near ? c_.inside(from % k_, to % k_) : c_.across(from % k_, to % k_);
    const int each = static_cast<int>(c_.capacities().size());
    const int there = other % unit_;
    Scenario::Route& r = s_.routes.emplace_back(c_.delay(o_.protocol, on_host.way));
    for (const int l : on_host.links) r.links.push_back(l + host * each);
    for (const int l : on_host.far) r.links.push_back(l + there * each);
    if (!near && leaf_ > 0 && host / leaf_ != other / leaf_) {
      r.links.push_back(first_leaf_ + 2 * (host / leaf_));
      r.links.push_back(first_leaf_ + 2 * (there / leaf_) + 1);
    }
    // A link counts once. A part that is as wide as the inside of a processor does not count at
    // all.
    std::ranges::sort(r.links);
    r.links.erase(std::unique(r.links.begin(), r.links.end()), r.links.end());
    p_.ways.push_back(on_host.way);
    return found->second;
  }

  /// Of steps that move so much of a block.
  std::uint32_t cost(float chunks) {
    const auto [found, is_new] =
        cost_numbers_.emplace(chunks, static_cast<std::uint32_t>(s_.costs.size()));
    if (is_new) s_.costs.push_back({0, static_cast<double>(chunks) * o_.block_bytes / o_.tiles});
    return found->second;
  }

  void add(const RankPlan& plan, int rank) {
    const int here = rank / k_ / unit_;
    for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
      Scenario::Lane lane;
      lane.begin = static_cast<std::uint32_t>(s_.steps.size());
      const int number = static_cast<int>(s_.workers.size());
      for (const Step& step : plan.lanes[l]) {
        Scenario::Step s;
        s.first = static_cast<std::uint32_t>(s_.ends.size());
        s.cost = cost(static_cast<float>(step.count) / static_cast<float>(plan.header.pieces));
        for (const Operand& o : plan.sources(step)) {
          refuse_windows(o);
          if (!o.is_link()) continue;
          const int unit = host_of(o.rank) / unit_;
          const int q =
              queue(o.rank % (unit_ * k_), rank, (here - unit + units_) % units_, o.channel);
          s_.queues[at(q)].receiver = number;
          s_.ends.push_back({q, kStays});
          ++s.sources;
        }
        for (const Operand& o : plan.destinations(step)) {
          refuse_windows(o);
          if (!o.is_link()) continue;
          const int unit = host_of(o.rank) / unit_;
          const int q =
              queue(rank, o.rank % (unit_ * k_), (unit - here + units_) % units_, o.channel);
          s_.ends.push_back({q, o.rank == rank ? kStays : route(rank, o.rank)});
          ++s.sends;
        }
        if (joins_last(lane, s)) {
          s_.steps.back().sends = static_cast<std::uint16_t>(s_.steps.back().sends + s.sends);
        } else if (s.sources > 0 || s.sends > 0) {
          s_.steps.push_back(s);
        }
      }
      lane.end = static_cast<std::uint32_t>(s_.steps.size());
      if (lane.end == lane.begin) continue;
      s_.workers.push_back({static_cast<std::uint32_t>(s_.lanes.size()), 1});
      s_.lanes.push_back(lane);
      p_.workers.push_back({rank, static_cast<int>(l)});
    }
  }

  /// The same once more, with lanes and queues of its own.
  void repeat(int tile) {
    const std::size_t workers = p_.workers.size(), lanes = workers;  // a worker for each lane
    const std::size_t queues = s_.queues.size() / at(tile);
    for (std::size_t w = 0; w < workers; ++w) {
      Scenario::Worker worker = s_.workers[w];
      worker.first_lane += static_cast<std::uint32_t>(at(tile) * lanes);
      worker.first_queue = tile * static_cast<int>(queues);
      worker.order = tile;
      s_.workers.push_back(worker);
      s_.lanes.push_back(Scenario::Lane(s_.lanes[w]));
    }
    for (std::size_t q = 0; q < queues; ++q) {
      Scenario::Queue queue = s_.queues[q];
      if (queue.receiver >= 0) queue.receiver += tile * static_cast<int>(workers);
      s_.queues.push_back(queue);
    }
  }

  /// Whether the step's sends are under way with those of the lane's last step.
  bool joins_last(const Scenario::Lane& lane, const Scenario::Step& s) const {
    if (!o_.at_once || s.sources > 0 || s_.steps.size() == lane.begin) return false;
    const Scenario::Step& last = s_.steps.back();
    return last.sources == 0 && last.cost == s.cost &&
           last.sends + s.sends <= std::numeric_limits<std::uint16_t>::max();
  }

  static void refuse_windows(const Operand& o) {
    if (!o.is_remote()) return;
    throw Error(ErrorCode::invalid_argument,
                "a plan that addresses other ranks' memory is not simulated on clusters");
  }

  const Cluster& c_;
  const PartOf& part_;
  const SimulateOptions& o_;
  int k_, unit_ = 1, units_ = 1;
  int leaf_ = 0, first_leaf_ = 0;
  std::vector<double> capacities_;
  std::unordered_map<std::uint64_t, int> queue_numbers_, route_numbers_;
  std::map<float, std::uint32_t> cost_numbers_;
  ClusterScenario p_;
  Scenario& s_ = p_.scenario;
};

}  // namespace

ClusterScenario scenario_of(const Cluster& cluster, const PartOf& part,
                            const SimulateOptions& options) {
  return ScenarioMaker(cluster, part, options).make();
}

Simulated simulate(const Cluster& cluster, const PartOf& part, const SimulateOptions& options) {
  ClusterScenario c = scenario_of(cluster, part, options);
  Course course = tutti::simulate(c.scenario, options.record);
  if (course.unfinished > 0) throw Error(ErrorCode::internal, "the simulated plan does not end");
  Simulated result;
  result.us = course.end;
  result.unit = c.unit;
  result.moved = std::move(course.moved);
  result.names = std::move(c.names);
  for (const double rate : c.scenario.rates) result.capacities.push_back(rate / 1000);
  for (const Course::Flow& flow : course.flows) {
    const auto workers = static_cast<int>(c.workers.size());
    const auto& worker = c.workers[static_cast<std::size_t>(flow.worker % workers)];
    const auto route = static_cast<std::size_t>(flow.route);
    result.record.push_back({worker.rank, worker.lane, flow.worker / workers, flow.span.start,
                             flow.span.end, flow.rate / 1000, c.ways[route],
                             c.scenario.routes[route].links});
  }
  return result;
}

}  // namespace tutti::cluster
