// See run.h.
#include "collectives/draw/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <vector>

#include "core/svg.h"

namespace tutti {
namespace {

using cluster::Moved;
using cluster::Simulated;

constexpr double kLeft = 150, kTop = 70, kWidth = 1100, kRight = 20;
constexpr std::size_t kMostRanks = 128, kMostBoxes = 40'000, kMostLinks = 96;
constexpr std::size_t kBins = 220;

struct WayStyle {
  std::string_view name, fill;
};
/// By GpuWay; told apart by lightness, too.
constexpr std::array<WayStyle, 4> kWays{{{"NVLink, xGMI", "#4db38c"},
                                         {"PCI", "#7fb8e6"},
                                         {"through the host's memory", "#f3b64c"},
                                         {"network", "#b8352f"}}};

class Sheet {
 public:
  Sheet(double height, std::string_view title, double us) : us_(std::max(us, 1e-9)) {
    put("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"11\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        kLeft + kWidth + kRight, height);
    text(16, 22, title, 14);
    // Times at round numbers, five to ten of them.
    const double power = std::pow(10, std::floor(std::log10(us_ / 4)));
    const double step = us_ / power > 20 ? 5 * power : us_ / power > 8 ? 2 * power : power;
    for (int i = 0; i * step <= us_; ++i) {
      put("<line x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2:.0f}\" stroke=\"#e3e6ea\"/>\n",
          x(i * step), kTop - 4, height - 30);
      text(x(i * step), kTop - 9, fmt::format("{:g} us", i * step), 10);
    }
  }

  template <typename... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Args>(args)...);
  }
  void text(double at, double y, std::string_view what, int size) {
    put("<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" fill=\"#2b3038\">{}</text>\n", at, y,
        size, drawing::escaped(what));
  }
  double x(double time) const { return kLeft + time / us_ * kWidth; }
  std::string finish() { return std::move(svg_) + "</svg>\n"; }

 private:
  double us_;
  std::string svg_;
};

std::string colour_of(double share) {
  // From white over orange to dark red.
  const double s = std::clamp(share, 0.0, 1.0);
  const auto mix = [&](double low, double middle, double high) {
    return static_cast<int>(s < 0.5 ? low + (middle - low) * 2 * s
                                    : middle + (high - middle) * (2 * s - 1));
  };
  return fmt::format("#{:02x}{:02x}{:02x}", mix(255, 243, 120), mix(255, 160, 10),
                     mix(255, 70, 20));
}

}  // namespace

std::string draw_run(const Simulated& run, std::string_view title) {
  std::size_t ranks = 1;
  double fastest = 1e-9;
  for (const Moved& m : run.record) {
    ranks = std::max(ranks, static_cast<std::size_t>(m.rank) + 1);
    fastest = std::max(fastest, m.rate);
  }
  const std::size_t shown = std::min(ranks, kMostRanks);
  const double band = shown <= 16 ? 30 : shown <= 64 ? 16 : 10;
  const double bottom = kTop + band * static_cast<double>(shown);
  Sheet sheet(bottom + 50, title, run.us);
  for (std::size_t r = 0; r < shown; ++r) {
    const double y = kTop + band * static_cast<double>(r);
    sheet.put("<line x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\" stroke=\"#c8ccd2\"/>\n",
              kLeft, kLeft + kWidth, y + band - 1);
    sheet.text(16, y + band - 4, fmt::format("rank {}", r), band < 14 ? 8 : 11);
  }
  std::size_t boxes = 0;
  for (const Moved& m : run.record) {
    if (static_cast<std::size_t>(m.rank) >= shown || ++boxes > kMostBoxes) continue;
    const double height = std::max(1.0, (band - 3) * m.rate / fastest);
    sheet.put(
        "<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\" "
        "fill-opacity=\".55\" stroke=\"white\" stroke-width=\".3\"><title>rank {}, lane {}, tile "
        "{}: "
        "{:.2f} to {:.2f} us at {:.3g} GB/s</title></rect>\n",
        sheet.x(m.begin), kTop + band * m.rank + band - 2 - height,
        std::max(0.4, sheet.x(m.end) - sheet.x(m.begin)), height,
        kWays[static_cast<std::size_t>(m.way)].fill, m.rank, m.lane, m.tile, m.begin, m.end,
        m.rate);
  }
  double at = kLeft;
  for (const WayStyle& w : kWays) {
    sheet.put("<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"12\" height=\"12\" fill=\"{}\"/>\n", at,
              bottom + 20, w.fill);
    sheet.text(at + 17, bottom + 30, w.name, 11);
    at += 60 + 6.5 * static_cast<double>(w.name.size());
  }
  const std::string key = fmt::format("height: its rate, at most {:.3g} GB/s", fastest);
  sheet.text(at, bottom + 30, key, 11);
  at += 30 + 6.5 * static_cast<double>(key.size());
  std::string left_out;
  if (ranks > shown) left_out += fmt::format("{} more ranks are not drawn. ", ranks - shown);
  if (boxes > kMostBoxes) left_out += fmt::format("{} more boxes are not.", boxes - kMostBoxes);
  if (!left_out.empty()) sheet.text(at, bottom + 30, left_out, 11);
  return sheet.finish();
}

std::string draw_heat(const Simulated& run, std::string_view title) {
  const std::size_t links = run.names.size();
  const double span = std::max(run.us, 1e-9) / kBins;
  std::vector<std::vector<double>> moved(links);  // bytes, by time
  std::vector<double> busy(links);                // of what it could have carried
  for (const Moved& m : run.record) {
    for (const int link : m.links) {
      const auto l = static_cast<std::size_t>(link);
      if (moved[l].empty()) moved[l].resize(kBins);
      busy[l] += m.rate * (m.end - m.begin) / (run.capacities[l] * std::max(run.us, 1e-9));
      const auto first = static_cast<std::size_t>(m.begin / span);
      for (std::size_t b = first; b < kBins && static_cast<double>(b) * span < m.end; ++b) {
        const double begin = std::max(m.begin, static_cast<double>(b) * span);
        const double end = std::min(m.end, static_cast<double>(b + 1) * span);
        moved[l][b] += std::max(0.0, end - begin) * m.rate;
      }
    }
  }
  std::vector<std::size_t> order;
  for (std::size_t l = 0; l < links; ++l) {
    if (!moved[l].empty()) order.push_back(l);
  }
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return busy[a] > busy[b] + 1e-9; });
  const std::size_t shown = std::min(order.size(), kMostLinks);
  constexpr double kRow = 14;
  const double bottom = kTop + kRow * static_cast<double>(shown);
  Sheet sheet(bottom + 50, title, run.us);
  for (std::size_t i = 0; i < shown; ++i) {
    const std::size_t l = order[i];
    const double y = kTop + kRow * static_cast<double>(i);
    sheet.text(8, y + 10, fmt::format("{:.24} {:.0f} %", run.names[l], 100 * busy[l]), 9);
    for (std::size_t b = 0; b < kBins;) {
      const auto colour = [&](std::size_t bin) {
        return colour_of(moved[l][bin] / (span * run.capacities[l]));
      };
      const std::string of = colour(b);
      std::size_t end = b + 1;
      while (end < kBins && colour(end) == of) ++end;
      if (of != "#ffffff") {
        sheet.put("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{}\" fill=\"{}\"/>\n",
                  sheet.x(static_cast<double>(b) * span), y,
                  kWidth * static_cast<double>(end - b) / kBins, kRow - 1, of);
      }
      b = end;
    }
  }
  for (int i = 0; i <= 10; ++i) {
    sheet.put("<rect x=\"{:.0f}\" y=\"{:.0f}\" width=\"24\" height=\"12\" fill=\"{}\"/>\n",
              kLeft + 24 * i, bottom + 20, colour_of(i / 10.0));
  }
  sheet.text(kLeft + 275, bottom + 30, "0 to 100 % of what the link carries", 11);
  if (order.size() > shown) {
    sheet.text(kLeft + 520, bottom + 30,
               fmt::format("{} links that are less busy are not drawn", order.size() - shown), 11);
  }
  return sheet.finish();
}

}  // namespace tutti
