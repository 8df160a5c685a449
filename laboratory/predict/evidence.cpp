// See evidence.h.
#include "laboratory/predict/evidence.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "laboratory/predict/evidence_table.h"

namespace tutti {
namespace {

/// Of a kind that nothing was measured of: twice as doubtful as the worst measured one.
constexpr double kUnmeasured = 2;

bool is_rooted_way(Collective c) {
  return c == Collective::broadcast || c == Collective::reduce || c == Collective::gather ||
         c == Collective::scatter;
}

std::size_t range_of(double bytes) {
  return static_cast<std::size_t>(
      std::ranges::count_if(kEvidenceRanges, [&](double first) { return bytes >= first; }));
}

}  // namespace

std::string_view name(CallKind kind) {
  constexpr std::array<std::string_view, 12> kNames{
      "one_switch",   "one_links",     "one_host",       "one_all_to_all",
      "several_sums", "several_rings", "several_alone",  "several_all_to_all",
      "one_sends",    "several_sends", "several_unlike", "unmeasured"};
  return kNames[static_cast<std::size_t>(kind)];
}

CallKind kind_of(const cluster::Cluster& c, Collective collective, const Prediction& p) {
  const bool one = c.hosts() == 1;
  const bool links = one && c.all_linked();
  if (p.protocol == GpuProtocol::copy && p.algorithm != nullptr) return CallKind::unmeasured;
  if (is_rooted_way(collective) && (links || !one)) return CallKind::unmeasured;
  if (collective == Collective::send_recv && (links || !one)) {
    return one ? CallKind::one_sends : CallKind::several_sends;
  }
  if (collective == Collective::all_to_all) {
    return one ? CallKind::one_all_to_all : CallKind::several_all_to_all;
  }
  const std::string& network = c.network().kind;
  if (!one && (network.starts_with("tcp") || network == "slingshot")) {
    return CallKind::several_unlike;
  }
  if (one && p.algorithm == nullptr) return CallKind::one_switch;
  if (one) return links ? CallKind::one_links : CallKind::one_host;
  if (c.ranks_of_a_host() == 1) return CallKind::several_alone;
  const bool ring = p.algorithm != nullptr && p.algorithm->follows_order;
  return ring ? CallKind::several_rings : CallKind::several_sums;
}

double measured_bytes(const cluster::Cluster& c, const Prediction& p, CallKind kind, double bytes) {
  constexpr double kMeasuredRanks = 16, kMeasuredGpus = 8;
  const bool several = kind == CallKind::several_sums || kind == CallKind::several_rings ||
                       kind == CallKind::several_all_to_all || kind == CallKind::several_unlike;
  if (!several || c.ranks_of_a_host() == 1) return bytes;
  const bool trees = p.algorithm == nullptr || p.algorithm->name == "hierarchical_tree";
  return bytes * (trees ? kMeasuredGpus / c.ranks_of_a_host() : kMeasuredRanks / c.ranks());
}

double ramp(CallKind kind, double bytes) {
  if (kind == CallKind::unmeasured) return 1;
  const auto& knots = kEvidence[static_cast<std::size_t>(kind)].ramp;
  const double last = static_cast<double>(knots.size() - 1);
  const double at = std::clamp((std::log2(std::max(bytes, 1.0)) - kFirstKnot) / 2, 0.0, last);
  const auto i = static_cast<std::size_t>(std::min(at, last - 1));
  const double part = at - static_cast<double>(i);
  // Straight lines of logarithms.
  return std::exp(std::log(knots[i]) * (1 - part) + std::log(knots[i + 1]) * part);
}

Band band_of(CallKind kind, double bytes) {
  const std::size_t range = range_of(bytes);
  if (kind != CallKind::unmeasured) return kEvidence[static_cast<std::size_t>(kind)].bands[range];
  Band widest;
  for (const Evidence& e : kEvidence) {
    widest.low = std::min(widest.low, e.bands[range].low);
    widest.high = std::max(widest.high, e.bands[range].high);
  }
  return {widest.low / kUnmeasured, widest.high * kUnmeasured, 0, 0};
}

}  // namespace tutti
