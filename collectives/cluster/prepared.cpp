// See prepared.h.
#include "collectives/cluster/prepared.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "core/error.h"

namespace tutti::cluster {
namespace {

/// Leaves with more ranks are looked at one host at a time.
constexpr int kMostUnitRanks = 1024;

class Preparation {
 public:
  Preparation(const Cluster& cluster, const PartOf& part, const SimulateOptions& options)
      : c_(cluster), part_(part), o_(options), k_(cluster.ranks_of_a_host()) {
    unit_ = options.unit > 0 ? options.unit : smallest_unit();
    units_ = c_.hosts() / unit_;
  }

  PreparedPlan prepare() {
    p_.unit = unit_;
    lay_out_links();
    for (int r = 0; r < unit_ * k_; ++r) add(part_(r), r);
    p_.rates = rates();
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
    const auto [found, is_new] = queue_numbers_.emplace(key, static_cast<int>(p_.receivers.size()));
    if (is_new) p_.receivers.push_back(-1);
    return found->second;
  }

  /// From a rank that is looked at to any; numbered by who they are.
  int route(int from, int to) {
    const int host = host_of(from), other = host_of(to);
    const bool near = host == other;
    const std::uint64_t key =
        static_cast<std::uint64_t>(from) << 32U | static_cast<std::uint32_t>(to);
    const auto [found, is_new] = route_numbers_.emplace(key, static_cast<int>(p_.routes.size()));
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
    p_.routes.push_back(std::move(r));
    return found->second;
  }

  void add(const RankPlan& plan, int rank) {
    const int here = rank / k_ / unit_;
    for (std::size_t l = 0; l < plan.lanes.size(); ++l) {
      PreparedLane lane;
      lane.begin = static_cast<std::uint32_t>(p_.steps.size());
      lane.rank = rank;
      lane.lane = static_cast<int>(l);
      const int number = static_cast<int>(p_.lanes.size());
      for (const Step& step : plan.lanes[l]) {
        PreparedStep s;
        s.first = static_cast<std::uint32_t>(p_.ends.size());
        s.chunks = static_cast<float>(step.count) / static_cast<float>(plan.header.pieces);
        for (const Operand& o : plan.sources(step)) {
          refuse_windows(o);
          if (!o.is_link()) continue;
          const int unit = host_of(o.rank) / unit_;
          const int q =
              queue(o.rank % (unit_ * k_), rank, (here - unit + units_) % units_, o.channel);
          p_.receivers[at(q)] = number;
          p_.ends.push_back({q, -1});
          ++s.sources;
        }
        for (const Operand& o : plan.destinations(step)) {
          refuse_windows(o);
          if (!o.is_link()) continue;
          const int unit = host_of(o.rank) / unit_;
          const int q =
              queue(rank, o.rank % (unit_ * k_), (unit - here + units_) % units_, o.channel);
          p_.ends.push_back({q, o.rank == rank ? -1 : route(rank, o.rank)});
          ++s.sends;
        }
        if (joins_last(lane, s)) {
          p_.steps.back().sends = static_cast<std::uint16_t>(p_.steps.back().sends + s.sends);
        } else if (s.sources > 0 || s.sends > 0) {
          p_.steps.push_back(s);
        }
      }
      lane.end = static_cast<std::uint32_t>(p_.steps.size());
      if (lane.end > lane.begin) p_.lanes.push_back(lane);
    }
  }

  /// Whether the step's sends are under way with those of the lane's last step.
  bool joins_last(const PreparedLane& lane, const PreparedStep& s) const {
    if (!o_.at_once || s.sources > 0 || p_.steps.size() == lane.begin) return false;
    const PreparedStep& last = p_.steps.back();
    return last.sources == 0 && last.chunks == s.chunks &&
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
  PreparedPlan p_;
};

}  // namespace

PreparedPlan prepare(const Cluster& cluster, const PartOf& part, const SimulateOptions& options) {
  return Preparation(cluster, part, options).prepare();
}

}  // namespace tutti::cluster
