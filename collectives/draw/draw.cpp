#include "collectives/draw/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string_view>

#include "collectives/draw/layout.h"
#include "collectives/draw/schedule.h"
#include "collectives/text/text.h"
#include "core/counted.h"
#include "core/svg.h"

namespace tutti {
namespace drawing {
namespace {

constexpr std::string_view kWindowColour = "#8e5bb0";
constexpr std::string_view kTroubleColour = "#c00030";

class Picture {
 public:
  explicit Picture(const Plan& plan)
      : plan_(plan), schedule_(make_schedule(plan)), at_(DrawLayout::of(plan, schedule_)) {}

  std::string draw() {
    open();
    draw_axis();
    draw_bands();
    if (at_.detailed) {
      draw_windows();
      draw_messages();
      draw_boxes();
    } else {
      if (schedule_.messages.size() <= DrawLimits::compact_arrows) draw_messages();
      draw_runs();
    }
    draw_stuck();
    draw_titles();
    draw_legend();
    svg_ += "</svg>\n";
    return std::move(svg_);
  }

 private:
  template <typename... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Args>(args)...);
  }

  void open() {
    put("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"Helvetica, Arial, 'DejaVu Sans', "
        "sans-serif\" font-size=\"12\" fill=\"#2b3038\">\n",
        at_.width, at_.height);
    svg_ += "<style>\n.m{fill:none;stroke:#3c4654;stroke-opacity:.55;stroke-width:1.3}\n";
    put(".w{{fill:none;stroke:{};stroke-opacity:.75;stroke-dasharray:4 2}}\n", kWindowColour);
    svg_ +=
        ".m:hover,.w:hover{stroke:#c00030;stroke-opacity:1;stroke-width:2.5}\n"
        ".l{font-size:11px;text-anchor:middle;pointer-events:none}\n.q{fill:#7a828e;font-size:11px}"
        "\n";
    for (const StepStyle& k : kStepStyles) {
      put(".{0}{{fill:{1}}}\n.l.{0}{{fill:{2}}}\n", k.css, k.fill, k.ink);
    }
    svg_ += "</style>\n<defs>\n";
    put_marker("head", "#3c4654");
    put_marker("whead", kWindowColour);
    svg_ += "</defs>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
  }

  void put_marker(std::string_view id, std::string_view colour) {
    put("<marker id=\"{}\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" "
        "markerHeight=\"7\" markerUnits=\"userSpaceOnUse\" orient=\"auto\">"
        "<path d=\"M0 .8 8 4 0 7.2z\" fill=\"{}\"/></marker>\n",
        id, colour);
  }

  void draw_axis() {
    // A tick every 1, 2, 5, 10, ... units, at least 40 pixels apart.
    double tick = 1;
    for (int i = 0; tick * at_.unit < 40; ++i) tick *= i % 3 == 1 ? 2.5 : 2;
    const double y = at_.top - 6;
    for (double t = 0; t <= at_.span; t += tick) {
      put("<path d=\"M{0:.1f} {1:.1f}V{2:.1f}\" stroke=\"#e3e6ea\"/>"
          "<text x=\"{0:.1f}\" y=\"{3:.1f}\" class=\"q\" text-anchor=\"middle\">{4:g}</text>\n",
          at_.x(t), y, at_.bottom, y - 5, t);
    }
    put("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"q\" text-anchor=\"end\">time &#8594;</text>\n",
        at_.left - 14, y - 5);
  }

  void draw_bands() {
    double last_label = -100;
    const double x = at_.left - 6;
    for (std::size_t r = 0; r < at_.ranks; ++r) {
      const double y = at_.band_y(r);
      if (at_.detailed) {
        put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"4\" "
            "fill=\"#f1f3f6\"/>\n",
            x, y - 2, at_.x(at_.span) + 6 - x, at_.band() + 4);
      }
      const double middle = y + at_.band() / 2;
      if (middle - last_label < 14) continue;
      last_label = middle;
      const bool root =
          is_rooted(plan_.header.collective) && plan_.header.root == static_cast<int>(r);
      const bool lanes = at_.detailed && at_.lanes > 1;
      put("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\"{}>rank {}{}</text>\n",
          lanes ? x - 32 : x - 8, middle + 4, root ? " font-weight=\"bold\"" : "", r,
          root && !lanes ? " (root)" : "");
      for (std::size_t l = 0; lanes && l < at_.lanes; ++l) {
        put("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"q\" text-anchor=\"end\">L{}</text>\n", x - 8,
            at_.lane_y(r, l) + at_.lane_height / 2 + 4, l);
      }
    }
  }

  /// Accesses to other ranks' memory: from the owner to the step that reads, or from the step that
  /// writes to the owner.
  void draw_windows() {
    for_each_step([&](const RankPlan& rank, const Step& step, const StepId& id, const StepTime& t) {
      for (const Operand& o : rank.destinations(step)) {
        if (is_drawn_window(o)) put_window(id, o, at_.x(t.end) - at_.room(), at_.x(t.end + 0.4));
      }
      for (const Operand& o : rank.sources(step)) {
        if (is_drawn_window(o)) put_window(id, o, at_.x(t.start) + 4, at_.x(t.start - 0.4));
      }
      windows_ = windows_ || std::any_of(rank.operands.begin(), rank.operands.end(),
                                         [&](const Operand& o) { return is_drawn_window(o); });
    });
  }
  bool is_drawn_window(const Operand& o) const {
    return o.is_remote() && o.rank >= 0 && static_cast<std::size_t>(o.rank) < at_.ranks;
  }
  void put_window(const StepId& id, const Operand& o, double step_x, double owner_x) {
    const bool reads = owner_x < step_x;
    const double step_y = at_.lane_y(id.rank, id.lane) + at_.lane_height / 2;
    const auto owner = static_cast<std::size_t>(o.rank);
    // To the edge of the owner's band that faces the step.
    const double owner_y = owner < id.rank ? at_.band_y(owner) + at_.band() : at_.band_y(owner);
    const double x1 = reads ? owner_x : step_x, y1 = reads ? owner_y : step_y;
    const double x2 = reads ? step_x : owner_x, y2 = reads ? step_y : owner_y;
    put("<path class=\"w\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" marker-end=\"url(#whead)\"/>\n", x1,
        y1, x2, y2);
  }

  void draw_messages() {
    for (const Arrow& m : schedule_.messages) {
      if (m.sender.rank >= at_.ranks || m.receiver.rank >= at_.ranks) continue;
      const double x1 = at_.x(schedule_.at(m.sender).end) - at_.room();
      const double x2 = at_.x(schedule_.at(m.receiver).start);
      const double y1 = at_.lane_y(m.sender.rank, m.sender.lane) + at_.lane_height / 2;
      const double y2 = at_.lane_y(m.receiver.rank, m.receiver.lane) + at_.lane_height / 2;
      put("<path class=\"m\" d=\"M{:.1f} {:.1f}", x1, y1);
      double x = x1, y = y1;
      // A message that waits to be received waits beside the sender's lane: the arrow leaves late.
      const double leave = x2 - kFlight * at_.unit - at_.room();
      if (leave > x1 + at_.unit / 8) {
        x = leave;
        y = y1 + (y2 < y1 ? -0.5 : 0.5) * at_.lane_height;
        const double turn = std::min(8.0, leave - x1);
        put("Q{:.1f} {:.1f} {:.1f} {:.1f}H{:.1f}", x1, y, x1 + turn, y, x);
      }
      const double bend = (x2 - x) * 0.45;
      put("C{:.1f} {:.1f} {:.1f} {:.1f} {:.1f} {:.1f}\"{}/>\n", x + bend, y, x2 - bend, y2, x2, y2,
          at_.detailed ? " marker-end=\"url(#head)\"" : "");
    }
  }

  void draw_boxes() {
    const double height = at_.lane_height - 4;
    for_each_step([&](const RankPlan& rank, const Step& step, const StepId& id, const StepTime& t) {
      const StepStyle& style = style_of(rank, step);
      const double x = at_.x(t.start);
      const double width = (t.end - t.start) * at_.unit - at_.room();
      const double y = at_.lane_y(id.rank, id.lane) + 2;
      put("<g><title>step {}/{}/{}, time {:g} to {:g}\n{}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" "
          "width=\"{:.1f}\" height=\"{:.1f}\" rx=\"3\" class=\"{}\"/>",
          id.rank, id.lane, id.step, t.start, t.end, escaped(to_text(rank, id.lane, step)), x, y,
          width, height, style.css);
      const std::string label = step_label(rank, step);
      if (!label.empty() && static_cast<double>(label.size()) * 6.4 < width - 1) {
        put("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"l {}\">{}</text>", x + width / 2,
            y + height / 2 + 4, style.css, label);
      }
      svg_ += "</g>\n";
    });
  }

  /// Compact: one path per kind. Boxes of one kind that cannot be told apart are drawn as one, and
  /// what falls on a pixel that is taken is left out, so the size of the picture has a bound.
  void draw_runs() {
    std::array<std::string, kStepKinds> paths;
    const double height = at_.lane_height >= 4 ? at_.lane_height - 1 : at_.lane_height;
    constexpr double kPixel = 1;
    struct Run {
      std::size_t kind = 0;
      double begin = 0, end = 0;
    };
    const auto flush = [&](const Run& run, std::size_t r, std::size_t l) {
      if (run.end <= run.begin) return;
      fmt::format_to(std::back_inserter(paths[run.kind]), "M{:.1f} {:.1f}h{:.1f}v{:.2f}h{:.1f}z",
                     run.begin, at_.lane_y(r, l), run.end - run.begin, height, run.begin - run.end);
    };
    for (std::uint32_t r = 0; r < at_.ranks; ++r) {
      for (std::uint32_t l = 0; l < plan_.ranks[r].lanes.size(); ++l) {
        Run run;
        for_each_step_of(
            r, l, [&](const RankPlan& rank, const Step& step, const StepId&, const StepTime& t) {
              const auto kind = static_cast<std::size_t>(step_kind(rank, step));
              used_[kind] = true;
              const double begin = at_.x(t.start);
              const double end = std::max(at_.x(t.end), begin + kPixel);
              if (kind == run.kind && begin < run.end + kPixel) {
                run.end = end;
              } else if (end >= run.end + kPixel) {
                flush(run, r, l);
                run = {kind, std::max(begin, run.end), end};
              }
            });
        flush(run, r, l);
      }
    }
    for (std::size_t k = 0; k < kStepKinds; ++k) {
      if (!paths[k].empty()) put("<path class=\"{}\" d=\"{}\"/>\n", kStepStyles[k].css, paths[k]);
    }
  }

  /// The first step of every lane that waits for ever.
  void draw_stuck() {
    if (schedule_.never_start == 0) return;
    for (std::size_t r = 0; r < at_.ranks; ++r) {
      for (std::size_t l = 0; l < plan_.ranks[r].lanes.size(); ++l) {
        const auto& times = schedule_.times[r][l];
        const auto stuck =
            std::find_if(times.begin(), times.end(), [](const StepTime& t) { return t.start < 0; });
        if (stuck == times.end()) continue;
        const double x = at_.x(stuck == times.begin() ? 0 : std::prev(stuck)->end) + 2;
        const auto index = static_cast<std::size_t>(stuck - times.begin());
        const RankPlan& rank = plan_.ranks[r];
        put("<g><title>step {0}/{1}/{2} never starts\n{3}</title><rect x=\"{4:.1f}\" y=\"{5:.1f}\" "
            "width=\"{6:.1f}\" height=\"{7:.1f}\" fill=\"#ffffff\" fill-opacity=\".8\" "
            "stroke=\"{8}\" stroke-dasharray=\"3 2\"/></g>\n",
            r, l, index,
            escaped(to_text(rank, static_cast<std::uint32_t>(l), rank.lanes[l][index])), x,
            at_.lane_y(r, l) + 2, std::max(at_.unit * kStuckStep, 3.0),
            std::max(at_.lane_height - 4, 0.5), kTroubleColour);
      }
    }
  }

  void draw_titles() {
    const PlanHeader& h = plan_.header;
    put("<text x=\"20\" y=\"34\" font-size=\"20\" font-weight=\"bold\">{} &#183; {} &#183; "
        "{}</text>\n",
        name(h.collective), escaped(h.algorithm), counted(plan_.ranks.size(), "rank"));
    put("<text x=\"20\" y=\"55\" class=\"q\">{} in {:g} unit{} of time &#183; {} of a block, "
        "{} a link, {} a rank</text>\n",
        counted(schedule_.steps, "step"), schedule_.end, schedule_.end == 1 ? "" : "s",
        counted(h.pieces, "piece"), counted(h.slots, "slot"), counted(h.lanes, "lane"));
    if (schedule_.never_start != 0) {
      put("<text x=\"20\" y=\"74\" fill=\"{}\" font-weight=\"bold\">Deadlock: {} never start{}; "
          "the "
          "first of each lane is outlined</text>\n",
          kTroubleColour, counted(schedule_.never_start, "step"),
          schedule_.never_start == 1 ? "s" : "");
    }
  }

  void draw_legend() {
    double x = 20;
    const double y = at_.bottom + 26;
    const auto advance = [&](std::string_view text) {
      put("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", x + 22, y + 4, text);
      x += 22 + static_cast<double>(text.size()) * 6.6 + 20;
    };
    for (std::size_t k = 0; k < kStepKinds; ++k) {
      if (!used_[k]) continue;
      put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"16\" height=\"14\" rx=\"3\" class=\"{}\"/>", x,
          y - 7, kStepStyles[k].css);
      advance(kStepStyles[k].legend);
    }
    if (!schedule_.messages.empty() &&
        (at_.detailed || schedule_.messages.size() <= DrawLimits::compact_arrows)) {
      put("<path class=\"m\" d=\"M{:.1f} {:.1f}h16\" marker-end=\"url(#head)\"/>", x, y);
      advance("message");
    }
    if (windows_) {
      put("<path class=\"w\" d=\"M{:.1f} {:.1f}h16\" marker-end=\"url(#whead)\"/>", x, y);
      advance("read or write in another rank's memory");
    }
    std::string note =
        "Every step takes one unit of time (a signal or a wait half of one) and a message half a "
        "unit: the shape of the algorithm, not a prediction.";
    put("<text x=\"20\" y=\"{:.1f}\" class=\"q\">{}</text>\n", y + 28, note);
    put("<text x=\"20\" y=\"{:.1f}\" class=\"q\">{}</text>\n", y + 44, reading_note());
  }

  std::string reading_note() const {
    if (at_.detailed) {
      return "The numbers are chunks. Point at a box for the step's text and its id, "
             "rank/lane/step.";
    }
    std::string note = "A large plan, drawn compactly: labels";
    if (schedule_.messages.size() > DrawLimits::compact_arrows) {
      note += fmt::format(", {} arrows", schedule_.messages.size());
    }
    if (plan_.ranks.size() > at_.ranks) note += fmt::format(", ranks from {}", at_.ranks);
    return note + " and tooltips are left out.";
  }

  const StepStyle& style_of(const RankPlan& rank, const Step& step) {
    const auto kind = static_cast<std::size_t>(step_kind(rank, step));
    used_[kind] = true;
    return kStepStyles[kind];
  }

  /// Calls f(rank plan, step, id, time) for every step that starts and is in the picture.
  template <typename F>
  void for_each_step(F f) {
    for (std::uint32_t r = 0; r < at_.ranks; ++r) {
      for (std::uint32_t l = 0; l < plan_.ranks[r].lanes.size(); ++l) for_each_step_of(r, l, f);
    }
  }
  template <typename F>
  void for_each_step_of(std::uint32_t r, std::uint32_t l, F f) {
    const RankPlan& rank = plan_.ranks[r];
    for (std::uint32_t s = 0; s < rank.lanes[l].size(); ++s) {
      const StepId id{r, l, s};
      const StepTime& time = schedule_.at(id);
      if (time.start >= 0) f(rank, rank.lanes[l][s], id, time);
    }
  }

  const Plan& plan_;
  const Schedule schedule_;
  const DrawLayout at_;
  std::string svg_;
  std::array<bool, kStepKinds> used_{};
  bool windows_ = false;
};

}  // namespace
}  // namespace drawing

std::string draw_svg(const Plan& plan) { return drawing::Picture(plan).draw(); }

}  // namespace tutti
