// The chart of a comparison (format_svg in compare_report.h): both axes are logarithmic, because
// sizes span seven orders of magnitude, and twice as fast is as far from 1 as half as fast.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "laboratory/compare/compare_report.h"

namespace tutti::compare {
namespace {

constexpr double kWidth = 820, kHeight = 430;
constexpr double kLeft = 70, kRight = 660, kTop = 60, kBottom = 370;
// Okabe and Ito's colours, which the colour-blind can tell apart.
constexpr std::array kColours{"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                              "#e69f00", "#56b4e9", "#000000"};

/// Powers of two from `least` to `most`, mapped to pixels.
struct Axis {
  double least, most;  // exponents
  double from, to;     // pixels

  double at(double value) const {
    const double span = std::max(most - least, 1.0);
    return from + (std::log2(value) - least) / span * (to - from);
  }
  double step(int ticks) const { return std::max(1.0, std::ceil((most - least) / ticks)); }
};

std::string bytes_label(double exponent) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB"};
  const auto unit = std::min(static_cast<std::size_t>(exponent / 10), kUnits.size() - 1);
  return fmt::format("{:.0f} {}", std::exp2(exponent - 10.0 * static_cast<double>(unit)),
                     kUnits[unit]);
}

std::string escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&') {
      escaped += "&amp;";
    } else if (c == '<') {
      escaped += "&lt;";
    } else {
      escaped += c;
    }
  }
  return escaped;
}

class Chart {
 public:
  Chart(const std::vector<Row>& rows, const Conditions& run) : rows_(rows), run_(run) {
    double low = 0.5, high = 2, small = 1e18, large = 1;
    for (const Row& row : rows) {
      small = std::min(small, static_cast<double>(row.bytes));
      large = std::max(large, static_cast<double>(row.bytes));
      low = std::min(low, row.ratio().value_or(Figure{1, 1, 1}).low);
      high = std::max(high, row.ratio().value_or(Figure{1, 1, 1}).high);
    }
    x_ = {std::floor(std::log2(small)), std::ceil(std::log2(large)), kLeft, kRight};
    y_ = {std::floor(std::log2(low)), std::ceil(std::log2(high)), kBottom, kTop};
  }

  std::string draw() {
    put(R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0}" height="{1}" )"
        R"(viewBox="0 0 {0} {1}" font-family="sans-serif" font-size="12">)",
        kWidth, kHeight);
    put(R"(<rect width="100%" height="100%" fill="white"/>)");
    const Row& first = rows_.front();
    text(kLeft, 24, "start", "Tutti's speed, relative to the best peer at each size", 15);
    text(kLeft, 44, "start",
         fmt::format("{} ranks, {}, buffers from {}; {}, {} cores", first.ranks, name(first.type),
                     first.memory, run_.cpu, run_.cores));
    grid();
    lines();
    put("</svg>");
    return svg_;
  }

 private:
  template <class... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Args>(args)...);
    svg_ += '\n';
  }
  void text(double x, double y, const char* anchor, const std::string& what, int size = 12,
            const char* colour = "#333") {
    put(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}" font-size="{}" fill="{}">{}</text>)", x, y,
        anchor, size, colour, escape(what));
  }

  void grid() {
    for (double e = x_.least; e <= x_.most; e += x_.step(9)) {
      const double x = x_.at(std::exp2(e));
      put(R"(<line x1="{0:.1f}" y1="{1}" x2="{0:.1f}" y2="{2}" stroke="#eee"/>)", x, kTop, kBottom);
      text(x, kBottom + 18, "middle", bytes_label(e));
    }
    for (double e = y_.least; e <= y_.most; e += y_.step(8)) {
      const double y = y_.at(std::exp2(e));
      put(R"(<line x1="{1}" y1="{0:.1f}" x2="{2}" y2="{0:.1f}" stroke="#eee"/>)", y, kLeft, kRight);
      text(kLeft - 8, y + 4, "end", fmt::format("{:g}x", std::exp2(e)));
    }
    const double one = y_.at(1);
    put(R"(<line x1="{1}" y1="{0:.1f}" x2="{2}" y2="{0:.1f}" stroke="#666" )"
        R"(stroke-dasharray="5 4"/>)",
        one, kLeft, kRight);
    text((kLeft + kRight) / 2, kBottom + 42, "middle", "size of a rank's larger buffer");
  }

  void lines() {
    std::vector<Collective> drawn;
    for (const Row& row : rows_) {
      if (std::find(drawn.begin(), drawn.end(), row.collective) != drawn.end()) continue;
      const char* colour = kColours[drawn.size() % kColours.size()];
      drawn.push_back(row.collective);
      std::string points, dots, spreads;
      for (const Row& r : rows_) {
        const auto ratio = r.ratio();
        if (r.collective != row.collective || !ratio) continue;
        const double x = x_.at(static_cast<double>(r.bytes)), y = y_.at(ratio->median);
        spreads += fmt::format(
            R"(<line x1="{0:.1f}" y1="{1:.1f}" x2="{0:.1f}" y2="{2:.1f}" stroke="{3}"/>)", x,
            y_.at(ratio->low), y_.at(ratio->high), colour);
        if (!ratio->steady()) continue;
        points += fmt::format("{:.1f},{:.1f} ", x, y);
        dots += fmt::format(
            R"(<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}"><title>{} B: {:.2f}x {}</title></circle>)",
            x, y, colour, r.bytes, ratio->median, r.best_peer());
      }
      put(R"(<polyline points="{}" fill="none" stroke="{}" stroke-width="2"/>{}{})", points, colour,
          spreads, dots);
      text(kRight + 16, kTop + 18 * static_cast<double>(drawn.size()), "start",
           std::string(name(row.collective)), 13, colour);
    }
  }

  const std::vector<Row>& rows_;
  const Conditions& run_;
  Axis x_{}, y_{};
  std::string svg_;
};

}  // namespace

std::string format_svg(const std::vector<Row>& rows, const Conditions& run) {
  return Chart(rows, run).draw();
}

}  // namespace tutti::compare
