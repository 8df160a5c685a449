// The picture of `tutti estimate`: bars of memory, and time against memory.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "core/counted.h"
#include "core/svg.h"
#include "tools/estimate/estimate_report.h"

namespace tutti {
namespace {

using namespace parallel::estimate;
using drawing::escaped;

struct Kind {
  std::string_view name, colour;
  double MemoryByKind::*bytes;
};
constexpr std::array kKinds{Kind{"parameters", "#4477aa", &MemoryByKind::parameters},
                            Kind{"gradients", "#66ccee", &MemoryByKind::gradients},
                            Kind{"optimizer", "#228833", &MemoryByKind::optimizer},
                            Kind{"in use", "#ccbb44", &MemoryByKind::in_use},
                            Kind{"activations", "#ee6677", &MemoryByKind::activations},
                            Kind{"logits", "#aa3377", &MemoryByKind::logits}};

// Left of the bars the longest name of a mix has room.
constexpr double kWidth = 1060, kLeft = 400, kBar = 22, kTop = 70, kRight = 40;

std::string text(double x, double y, std::string_view words, std::string_view more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" {}>{}</text>\n", x, y, more, escaped(words));
}

std::string box(double x, double y, double w, double h, std::string_view colour,
                std::string_view title) {
  return fmt::format(
      "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
      "fill=\"{}\"><title>{}</title></rect>\n",
      x, y, w, h, colour, escaped(title));
}

std::string bars(const EstimateReport& r, double most) {
  const double scale = (kWidth - kLeft - kRight) / most;
  std::string out;
  double y = kTop;
  for (const Estimate& e : r.result.kinds) {
    out += text(kLeft - 8, y + 15, e.mix.text(), "text-anchor=\"end\"");
    double x = kLeft;
    for (const Kind& k : kKinds) {
      const double bytes = e.memory.*k.bytes;
      const double width = std::min(bytes * scale, kWidth - x);
      if (width <= 0) continue;
      out +=
          box(x, y, width, kBar - 4, k.colour, fmt::format("{}: {:.1f} GB", k.name, bytes / 1e9));
      x += width;
    }
    // Beside the bar, or, where that ends at the edge, in it.
    const bool is_inside = x > kWidth - 36;
    out +=
        text(is_inside ? kWidth - 4 : x + 4, y + 15, fmt::format("{:.0f}", e.memory.total() / 1e9),
             is_inside ? "text-anchor=\"end\" font-size=\"10\" fill=\"white\" stroke=\"#333\" "
                         "stroke-width=\"2.5\" paint-order=\"stroke\""
                       : "font-size=\"10\"");
    y += kBar;
  }
  const double limit = kLeft + r.cluster.memory * scale;
  out += fmt::format(
      "<line x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\" stroke=\"black\" "
      "stroke-dasharray=\"4 3\"/>\n",
      limit, kTop - 6, y);
  return out + text(limit, kTop - 10, fmt::format("{:.0f} GB", r.cluster.memory / 1e9),
                    "text-anchor=\"middle\" font-size=\"11\"");
}

/// Round numbers from `step` to `most`, four to ten of them.
std::vector<double> ticks(double most) {
  const double power = std::pow(10, std::floor(std::log10(std::max(most, 1e-9) / 4)));
  const double step = most / power > 20 ? 5 * power : most / power > 8 ? 2 * power : power;
  std::vector<double> at;
  for (int i = 1; i * step <= most * (1 + 1e-9); ++i) at.push_back(i * step);
  return at;
}

/// Labels of points, at places where they cover neither another one nor a point.
class Labels {
 public:
  /// Below `top`.
  Labels(std::vector<std::array<double, 2>> points, double top)
      : points_(std::move(points)), top_(top) {}

  /// That of a point; "" where there is no room for it.
  std::string at(double x, double y, const std::string& words) {
    constexpr double kHigh = 12, kOfPoint = 6;
    const double wide = 5.8 * static_cast<double>(words.size());
    const std::array<Place, 4> places{
        Place{x - wide / 2, y - 8 - kHigh, wide, kHigh}, Place{x + 8, y - kHigh / 2, wide, kHigh},
        Place{x - wide / 2, y + 8, wide, kHigh}, Place{x - 8 - wide, y - kHigh / 2, wide, kHigh}};
    for (const Place& p : places) {
      const auto covers = [&](const Place& other) {
        return p.x < other.x + other.wide && other.x < p.x + p.wide && p.y < other.y + other.high &&
               other.y < p.y + p.high;
      };
      const bool is_out = p.x < kLeft || p.x + p.wide > kWidth || p.y < top_;
      if (is_out || std::ranges::any_of(taken_, covers) ||
          std::ranges::any_of(points_, [&](const auto& point) {
            return covers({point[0] - kOfPoint, point[1] - kOfPoint, 2 * kOfPoint, 2 * kOfPoint});
          })) {
        continue;
      }
      taken_.push_back(p);
      return text(p.x, p.y + kHigh - 3, words, "font-size=\"10\"");
    }
    return "";
  }

 private:
  struct Place {
    double x, y, wide, high;
  };
  const std::vector<std::array<double, 2>> points_;
  const double top_;
  std::vector<Place> taken_;
};

std::string front(const EstimateReport& r, double top, double height) {
  const std::vector<Estimate>& all = r.result.pareto;
  std::string out = text(kLeft, top - 12,
                         "Seconds of a step against the memory of a GPU: no mix is "
                         "faster with less memory");
  const double slowest = all.back().time.total() * 1.05;
  const double x_scale = (kWidth - kLeft - kRight) / r.cluster.memory,
               y_scale = height / std::max(slowest, 1e-9);
  out += fmt::format(
      "<path d=\"M{0:.1f} {1:.1f} V{2:.1f} H{3:.1f}\" fill=\"none\" stroke=\"#888\"/>\n", kLeft,
      top, top + height, kWidth - kRight);
  for (const double gigabytes : ticks(r.cluster.memory / 1e9)) {
    out += text(kLeft + gigabytes * 1e9 * x_scale, top + height + 14,
                fmt::format("{:g} GB", gigabytes), "text-anchor=\"middle\" font-size=\"10\"");
  }
  for (const double seconds : ticks(slowest)) {
    out += text(kLeft - 6, top + height - seconds * y_scale + 4, fmt::format("{:g} s", seconds),
                "text-anchor=\"end\" font-size=\"10\"");
  }
  std::vector<std::array<double, 2>> points;
  for (const Estimate& e : all) {
    points.push_back({kLeft + e.memory.total() * x_scale, top + height - e.time.total() * y_scale});
  }
  Labels labels(points, top);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Estimate& e = all[i];
    const auto [x, y] = points[i];
    out += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"#4477aa\"><title>{}</title></circle>\n",
        x, y,
        escaped(fmt::format("{}{}: {:.1f} GB, {:.3f} s", e.mix.text(),
                            e.mix.recompute ? ", recomputing" : "", e.memory.total() / 1e9,
                            e.time.total())));
    out += labels.at(x, y, e.mix.text());
  }
  return out;
}

}  // namespace

std::string estimate_picture(const EstimateReport& r) {
  // What lacks far more memory than there is runs over the edge.
  double most = r.cluster.memory * 1.1;
  for (const Estimate& e : r.result.kinds) {
    most = std::max(most, std::min(e.memory.total(), 2.5 * r.cluster.memory));
  }
  const double under = kTop + kBar * static_cast<double>(r.result.kinds.size()) + 70;
  const double height = r.result.pareto.empty() ? 0 : 220;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1:.0f}\" "
      "viewBox=\"0 0 {0} {1:.0f}\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
      kWidth, under + height + (height > 0 ? 30 : -40));
  out += text(
      16, 20,
      fmt::format("{} on {}: memory of a GPU (GB)", r.model.name, counted(r.cluster.gpus, "GPU")),
      "font-size=\"14\" font-weight=\"bold\"");
  double x = kLeft;
  for (const Kind& k : kKinds) {
    out += box(x, 30, 10, 10, k.colour, k.name);
    out += text(x + 14, 39, k.name, "font-size=\"11\"");
    x += 100;
  }
  out += bars(r, most);
  if (height > 0) out += front(r, under, height);
  return out + "</svg>\n";
}

}  // namespace tutti
