// The picture of `tutti estimate`: bars of memory, and time against memory.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

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

constexpr double kWidth = 900, kLeft = 240, kBar = 22, kTop = 70, kRight = 40;

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
    out += text(std::min(x + 4, kWidth - 36), y + 15, fmt::format("{:.0f}", e.memory.total() / 1e9),
                "font-size=\"10\"");
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
  for (const double part : {0.25, 0.5, 0.75, 1.0}) {
    out += text(kLeft + part * r.cluster.memory * x_scale, top + height + 14,
                fmt::format("{:.0f} GB", part * r.cluster.memory / 1e9),
                "text-anchor=\"middle\" font-size=\"10\"");
    out += text(kLeft - 6, top + height - part * slowest * y_scale + 4,
                fmt::format("{:.2f} s", part * slowest), "text-anchor=\"end\" font-size=\"10\"");
  }
  double last = -100;
  for (const Estimate& e : all) {
    const double x = kLeft + e.memory.total() * x_scale,
                 y = top + height - e.time.total() * y_scale;
    out += fmt::format(
        "<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" fill=\"#4477aa\"><title>{}</title></circle>\n",
        x, y,
        escaped(fmt::format("{}{}: {:.1f} GB, {:.3f} s", e.mix.text(),
                            e.mix.recompute ? ", recomputing" : "", e.memory.total() / 1e9,
                            e.time.total())));
    if (last < 0 || last - x > 120) {
      out += text(x, y - 8, e.mix.text(), "text-anchor=\"middle\" font-size=\"10\"");
      last = x;
    }
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
  out +=
      text(16, 20, fmt::format("{} on {} GPUs: memory of a GPU (GB)", r.model.name, r.cluster.gpus),
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
