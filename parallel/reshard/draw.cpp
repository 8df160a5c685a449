#include "parallel/reshard/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/host_memory.h"
#include "core/svg.h"
#include "parallel/reshard/verify.h"

namespace tutti::parallel::reshard {
namespace {

enum class Way { own, host, link, relay };
constexpr const char* kColours[] = {"#9aa3ad", "#2e6eb8", "#de9226", "#268a5c"};
constexpr const char* kNames[] = {"a rank's own copy", "inside a host", "between hosts",
                                  "passed on"};

struct Flow {
  Way way{};
  int from = 0, to = 0;
  std::uint64_t bytes = 0, messages = 0;
};

std::vector<Flow> flows_of(const Plan& plan) {
  std::map<std::tuple<int, int, Way>, Flow> flows;
  for (const Message& m : plan.messages) {
    const bool relay = std::ranges::any_of(plan.moves_of(m), &Move::relay);
    const Way way = m.from == m.to                                         ? Way::own
                    : plan.hosts[index(m.from)] != plan.hosts[index(m.to)] ? Way::link
                    : relay                                                ? Way::relay
                                                                           : Way::host;
    Flow& f = flows[{m.from, m.to, way}];
    f = {way, m.from, m.to, f.bytes + m.bytes, f.messages + 1};
  }
  std::vector<Flow> list;
  for (const auto& [key, flow] : flows) list.push_back(flow);
  return list;
}

constexpr double kTop = 92, kBar = 26, kSpace = 14, kHostGap = 22, kLeft = 190, kRight = 690,
                 kEnd = 900, kTall = 420;

/// One side of the picture: a bar for each rank, as tall as its bytes.
class Column {
 public:
  Column(const Plan& plan, const std::vector<Flow>& flows, int Flow::*end, double per_byte)
      : next_(plan.hosts.size()), size_(plan.hosts.size()) {
    for (const Flow& f : flows) {
      size_[index(f.*end)] += std::max(static_cast<double>(f.bytes) * per_byte, 0.6);
    }
    for (std::size_t r = 0; r < size_.size(); ++r) {
      if (size_[r] > 0) order_.push_back(static_cast<int>(r));
    }
    std::ranges::stable_sort(order_, {}, [&](int r) { return plan.hosts[index(r)]; });
    double y = kTop;
    for (std::size_t i = 0; i < order_.size(); ++i) {
      const int r = order_[i];
      if (i > 0 && plan.hosts[index(r)] != plan.hosts[index(order_[i - 1])]) y += kHostGap;
      next_[index(r)] = y;
      y += std::max(size_[index(r)], 12.0) + kSpace;
    }
    bottom_ = y;
  }
  const std::vector<int>& order() const { return order_; }
  double top(int rank) const { return next_[index(rank)]; }
  double size(int rank) const { return std::max(size_[index(rank)], 12.0); }
  double bottom() const { return bottom_; }
  /// The middle of the next band of this height.
  double take(int rank, double height) {
    const double y = next_[index(rank)];
    next_[index(rank)] += height;
    return y + height / 2;
  }

 private:
  std::vector<double> next_, size_;
  std::vector<int> order_;
  double bottom_ = 0;
};

/// "1 message", "2 messages".
std::string number_of(std::uint64_t n, std::string_view what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

std::string draw_column(const Plan& plan, const Column& column, double x, bool left) {
  std::string svg;
  int host = -1;
  for (const int r : column.order()) {
    const double y = column.top(r);
    if (plan.hosts[index(r)] != host) {
      host = plan.hosts[index(r)];
      svg += fmt::format("<text x=\"{:.0f}\" y=\"{:.1f}\" class=\"q\"{}>host {}</text>\n",
                         left ? x - 96 : x + 124, y + 11, left ? " text-anchor=\"end\"" : "", host);
    }
    svg += fmt::format(
        "<rect x=\"{:.0f}\" y=\"{:.1f}\" width=\"{:.0f}\" height=\"{:.1f}\" fill=\"#2b3038\"/>"
        "<text x=\"{:.0f}\" y=\"{:.1f}\"{}>rank {}</text>\n",
        left ? x - kBar : x, y, kBar, column.size(r), left ? x - kBar - 8 : x + kBar + 8, y + 11,
        left ? " text-anchor=\"end\"" : "", r);
  }
  return svg;
}

}  // namespace

std::string draw_svg(const Layout& from, const Layout& to, const Plan& plan) {
  const Verdict verdict = verify(from, to, plan);
  if (!verdict.right) {
    throw Error(ErrorCode::unproven_plan,
                fmt::format("the reshard's plan cannot be drawn: {}", verdict.story));
  }
  const std::vector<Flow> flows = flows_of(plan);
  constexpr int kMostRanks = 256;
  constexpr std::size_t kMostFlows = 20'000;
  if (plan.ranks() > kMostRanks || flows.size() > kMostFlows) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the reshard has {} ranks and {} pairs of them: at most {} and {} are "
                            "drawn",
                            plan.ranks(), flows.size(), kMostRanks, kMostFlows));
  }
  std::uint64_t all = 0;
  for (const Flow& f : flows) all += f.bytes;
  const double per_byte = kTall / std::max(static_cast<double>(all), 1.0);
  Column left(plan, flows, &Flow::from, per_byte), right(plan, flows, &Flow::to, per_byte);
  const double bottom = std::max({left.bottom(), right.bottom(), kTop + 40});
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"Helvetica, Arial, 'DejaVu Sans', sans-serif\" "
      "font-size=\"12\" fill=\"#2b3038\">\n<style>.q{{fill:#6a727e;font-size:11px}}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n"
      "<text x=\"20\" y=\"32\" font-size=\"20\" font-weight=\"bold\">reshard &#183; {2} "
      "&#183; {3}</text>\n",
      kEnd, bottom + 50, number_of(to.tensors.size(), "tensor"),
      drawing::escaped(memory_text(static_cast<double>(all))));
  svg += fmt::format(
      "<text x=\"20\" y=\"54\">{} &#183; between hosts {} &#183; the busiest link {}, at "
      "least {}</text>\n",
      number_of(plan.messages.size(), "message"),
      memory_text(static_cast<double>(verdict.loads.total())),
      memory_text(static_cast<double>(verdict.loads.most())),
      memory_text(static_cast<double>(verdict.bound)));
  svg += draw_column(plan, left, kLeft, true) + draw_column(plan, right, kRight, false);
  for (const Flow& f : flows) {
    const double height = std::max(static_cast<double>(f.bytes) * per_byte, 0.6);
    const double a = left.take(f.from, height), b = right.take(f.to, height);
    svg += fmt::format(
        "<path d=\"M{0:.0f} {1:.1f}C{2:.0f} {1:.1f} {2:.0f} {3:.1f} {4:.0f} {3:.1f}\" "
        "fill=\"none\" "
        "stroke=\"{5}\" stroke-opacity=\"0.55\" stroke-width=\"{6:.1f}\"><title>rank {7} to rank "
        "{8}, {9}: {10} in {11}</title></path>\n",
        kLeft, a, (kLeft + kRight) / 2, b, kRight, kColours[static_cast<int>(f.way)], height,
        f.from, f.to, kNames[static_cast<int>(f.way)], memory_text(static_cast<double>(f.bytes)),
        number_of(f.messages, "message"));
  }
  double x = 20;
  for (std::size_t w = 0; w < std::size(kNames); ++w) {
    svg += fmt::format(
        "<rect x=\"{0:.0f}\" y=\"{1:.0f}\" width=\"14\" height=\"14\" fill=\"{2}\"/><text "
        "x=\"{3:.0f}\" y=\"{4:.0f}\">{5}</text>\n",
        x, bottom + 14, kColours[w], x + 20, bottom + 25, kNames[w]);
    x += 150;
  }
  return svg + "</svg>\n";
}

}  // namespace tutti::parallel::reshard
