#include "parallel/pipeline/draw.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/svg.h"
#include "parallel/pipeline/messages.h"
#include "parallel/pipeline/timeline.h"
#include "parallel/pipeline/verify.h"

namespace tutti::parallel::pipeline {
namespace {

struct Style {
  std::string_view css;
  std::string_view legend;
  std::array<int, 3> fill;  // red, green, blue
};
/// By Work.
constexpr std::array<Style, 4> kStyles = {{
    {"F", "forward", {46, 110, 184}},
    {"B", "backward", {38, 138, 92}},
    {"I", "backward of inputs", {128, 76, 168}},
    {"W", "backward of weights", {222, 146, 38}},
}};

/// What is seen of `text`: no tags, and one letter for what is written as "&#183;".
std::string without_marks(std::string_view text) {
  std::string seen;
  bool inside = false;
  for (const char c : text) {
    if (!inside && c != '<') seen += c;
    inside = (inside || c == '<' || c == '&') && c != '>' && c != ';';
  }
  return seen;
}

/// A rank's stages are drawn lighter one after the other; from the fifth on, as light as that.
constexpr int kShades = 5;

constexpr double kLeft = 120, kRight = 150, kTop = 96, kRow = 30, kGap = 6;

class Picture {
 public:
  Picture(const Schedule& schedule, const Costs& costs, const Verdict& verdict)
      : s_(schedule), costs_(costs), verdict_(verdict) {
    const Messages messages = messages_of(s_);
    line_ = timeline_of(s_, messages, costs_);
    double shortest = line_.end;
    for (const auto& spans : line_.actions) {
      for (const Span& span : spans) {
        if (!span.never() && span.end > span.start)
          shortest = std::min(shortest, span.end - span.start);
      }
    }
    // As wide as a window; or wider, so that every box has room for its number, or narrower, so
    // that none is a long one.
    const double end = std::max(line_.end, 1e-9);
    shortest = std::max(shortest, end / 4000);
    unit_ = std::min(std::max(18 / shortest, std::min(900 / end, 60 / shortest)), 6000 / end);
    width_ = kLeft + end * unit_ + kRight;
    bottom_ = kTop + kGap + static_cast<double>(s_.ranks()) * (kRow + kGap);
  }

  std::string draw() {
    draw_titles();
    draw_axis();
    for (int r = 0; r < s_.ranks(); ++r) draw_rank(r);
    draw_legend();
    svg_ += "</svg>\n";
    const std::string body = std::exchange(svg_, {});
    open();  // last, when the width is known
    return svg_ + body;
  }

 private:
  template <typename... Args>
  void put(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(svg_), format, std::forward<Args>(args)...);
  }
  /// The picture is as wide as `text` at `left`, of letters of `size`, at least.
  void make_room(double left, std::string_view text, double size) {
    constexpr double kEm = 0.6;  // of a letter, in the widest of the fonts
    width_ = std::max(width_, left + kEm * size * static_cast<double>(text.size()) + 20);
  }
  double x(double time) const { return kLeft + time * unit_; }
  static double y(int rank) { return kTop + kGap + rank * (kRow + kGap); }

  void open() {
    put("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"Helvetica, Arial, 'DejaVu Sans', "
        "sans-serif\" font-size=\"12\" fill=\"#2b3038\">\n<style>\n"
        ".q{{fill:#6a727e;font-size:11px}}\n.n{{text-anchor:middle;pointer-events:none}}\n",
        width_, bottom_ + 66);
    for (const Style& style : kStyles) {
      for (int shade = 0; shade < kShades; ++shade) {
        const double white = 1 - 1 / (1 + 0.75 * shade);
        const auto mix = [&](int c) { return std::lround(c + (255 - c) * white); };
        put(".{0}{1}{{fill:#{2:02x}{3:02x}{4:02x}}}\n.n.{0}{1}{{fill:{5}}}\n", style.css, shade,
            mix(style.fill[0]), mix(style.fill[1]), mix(style.fill[2]),
            shade == 0 ? "#ffffff" : "#10151c");
      }
    }
    put("</style>\n<defs><pattern id=\"wait\" width=\"6\" height=\"6\" "
        "patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect width=\"6\" "
        "height=\"6\" fill=\"#f6e9ea\"/><path d=\"M0 0V6\" stroke=\"#d79aa2\" "
        "stroke-width=\"2\"/></pattern></defs>\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n");
  }

  void draw_titles() {
    const auto plural = [](int n, std::string_view what) {
      return fmt::format("{} {}{}", n, what, n == 1 ? "" : what.ends_with('h') ? "es" : "s");
    };
    const std::string title = fmt::format(
        "{} &#183; {} &#183; {} &#183; {}", drawing::escaped(s_.name), plural(s_.ranks(), "rank"),
        plural(s_.stages(), "stage"), plural(s_.micro_batches, "micro-batch"));
    put("<text x=\"20\" y=\"32\" font-size=\"20\" font-weight=\"bold\">{}</text>\n", title);
    make_room(20, without_marks(title), 22);  // it is bold
    if (line_.never_start > 0) {
      const std::string trouble =
          fmt::format("Deadlock: {} never start{}", plural(line_.never_start, "action"),
                      line_.never_start == 1 ? "s" : "");
      put("<text x=\"20\" y=\"54\" fill=\"#c00030\" font-weight=\"bold\">{}</text>\n", trouble);
      make_room(20, trouble, 13);
      return;
    }
    double bubble = 0;
    for (int r = 0; r < s_.ranks(); ++r) {
      double waits = 0;
      for (const Span& wait : waits_of(line_, r)) waits += wait.end - wait.start;
      bubble = std::max(bubble, waits);
    }
    constexpr std::string_view kBold = "<tspan font-weight=\"bold\">";
    std::string numbers = fmt::format(
        "makespan {0}{1:.4g}</tspan> &#183; bubble {0}{2:.4g}</tspan> ({3:.0f} %) &#183; ", kBold,
        line_.end, bubble, 100 * bubble / std::max(line_.end, 1e-9));
    if (verdict_.proved) {
      const int live = *std::max_element(verdict_.live.begin(), verdict_.live.end());
      numbers +=
          fmt::format("at most {}{}</tspan> live &#183; ", kBold, plural(live, "activation"));
    } else {
      numbers += "<tspan fill=\"#c00030\">more live activations than declared</tspan> &#183; ";
    }
    numbers += fmt::format("{} at each end of a link", plural(s_.buffers, "buffer"));
    put("<text x=\"20\" y=\"54\">{}</text>\n", numbers);
    make_room(20, without_marks(numbers), 12);
  }

  void draw_axis() {
    double tick = std::pow(10, std::floor(std::log10(std::max(line_.end, 1e-9) / 10)));
    for (int i = 0; tick * unit_ < 40; ++i) tick *= i % 3 == 1 ? 2.5 : 2;
    const double top = kTop - 4;
    for (int i = 0; i * tick <= line_.end * (1 + 1e-9); ++i) {
      put("<path d=\"M{0:.1f} {1:.1f}V{2:.1f}\" stroke=\"#e3e6ea\"/><text x=\"{0:.1f}\" "
          "y=\"{3:.1f}\" class=\"q\" text-anchor=\"middle\">{4:g}</text>\n",
          x(i * tick), top, bottom_, top - 5, i * tick);
    }
    put("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"q\" text-anchor=\"end\">time &#8594;</text>\n",
        kLeft - 14, top - 5);
  }

  void draw_rank(int rank) {
    const double top = y(rank);
    std::string stages;
    std::vector<int> own;
    for (int stage = 0; stage < s_.stages(); ++stage) {
      if (s_.rank_of(stage) != rank) continue;
      own.push_back(stage);
      if (own.size() <= 4) stages += fmt::format("{}{}", own.size() > 1 ? ", " : "", stage);
      if (own.size() == 5) stages += " ...";
    }
    put("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">rank {}</text>\n"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\" class=\"q\">stage{} {}</text>\n",
        kLeft - 10, top + 13, rank, kLeft - 10, top + 26, own.size() == 1 ? "" : "s", stages);
    put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"#f1f3f6\"/>\n",
        x(0), top, line_.end * unit_, kRow);

    for (const Span& wait : waits_of(line_, rank)) {
      put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" "
          "fill=\"url(#wait)\"><title>rank {} waits from {:.4g} to {:.4g}</title></rect>\n",
          x(wait.start), top, (wait.end - wait.start) * unit_, kRow, rank, wait.start, wait.end);
      waits_ = true;
    }
    const auto& spans = line_.actions[index(rank)];
    double busy = 0, last = 0;
    for (std::size_t i = 0; i < spans.size() && !spans[i].never(); ++i) {
      draw_action(rank, i, own);
      busy += spans[i].end - spans[i].start;
      last = spans[i].end;
    }
    if (line_.never_start > 0) return draw_stuck(rank, last);
    const std::string summary =
        fmt::format("{:.0f} % busy{}", 100 * busy / std::max(line_.end, 1e-9),
                    verdict_.proved ? fmt::format(", {} live", verdict_.live[index(rank)]) : "");
    put("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"q\">{}</text>\n", x(line_.end) + 10, top + 19,
        summary);
    make_room(x(line_.end) + 10, summary, 11);
  }

  void draw_action(int rank, std::size_t i, const std::vector<int>& own) {
    const Action& a = s_.actions[index(rank)][i];
    const Span& span = line_.actions[index(rank)][i];
    const auto place = std::lower_bound(own.begin(), own.end(), a.stage) - own.begin();
    const int shade = std::min(static_cast<int>(place), kShades - 1);
    const Style& style = kStyles[static_cast<std::size_t>(a.work)];
    used_.insert(a.work);
    shades_ = std::max(shades_, shade + 1);
    const double left = x(span.start), width = (span.end - span.start) * unit_, top = y(rank);
    put("<g><title>{}\ntime {:.4g} to {:.4g}</title><rect x=\"{:.1f}\" y=\"{:.1f}\" "
        "width=\"{:.1f}\" height=\"{:.1f}\" class=\"{}{}\" stroke=\"#ffffff\" "
        "stroke-width=\"{}\"/>",
        describe(s_, {rank, static_cast<int>(i)}), span.start, span.end, left, top, width, kRow,
        style.css, shade, width > 4 ? 1 : 0.2);
    const std::string label = fmt::format("{}", a.micro_batch);
    if (static_cast<double>(label.size()) * 7 < width) {
      put("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"n {}{}\">{}</text>", left + width / 2, top + 19,
          style.css, shade, label);
    }
    svg_ += "</g>\n";
  }

  /// The first action of a rank that never starts.
  void draw_stuck(int rank, double time) {
    const auto& spans = line_.actions[index(rank)];
    const auto at =
        std::find_if(spans.begin(), spans.end(), [](const Span& s) { return s.never(); });
    if (at == spans.end()) return;
    const ActionId stuck{rank, static_cast<int>(at - spans.begin())};
    put("<g><title>{} never starts</title><rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"46\" "
        "height=\"{:.1f}\" fill=\"#ffffff\" stroke=\"#c00030\" stroke-dasharray=\"3 2\"/>"
        "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" fill=\"#c00030\">{}</text></g>\n",
        describe(s_, stuck), x(time) + 2, y(rank) + 1, kRow - 2, x(time) + 25, y(rank) + 19,
        to_string(s_.actions[index(rank)][index(stuck.action)]));
  }

  void draw_legend() {
    double at = kLeft;
    const double top = bottom_ + 14;
    const auto text = [&](std::string_view what) {
      put("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", at + 4, top + 11, what);
      make_room(at + 4, what, 12);
      at += 4 + static_cast<double>(what.size()) * 6.4 + 18;
    };
    for (const Work work : used_) {
      const Style& style = kStyles[static_cast<std::size_t>(work)];
      for (int shade = 0; shade < shades_; ++shade, at += 14) {
        put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"14\" class=\"{}{}\"/>", at, top,
            style.css, shade);
      }
      text(style.legend);
    }
    if (waits_) {
      put("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"14\" height=\"14\" fill=\"url(#wait)\"/>", at,
          top);
      at += 14;
      text("bubble");
    }
    const std::string footer = fmt::format(
        "Numbers are micro-batches.{} A forward takes {:g}, a backward {:g} + {:g} (inputs, "
        "weights), a message {:g}.",
        shades_ > 1 ? " Lighter: a later stage of the rank." : "", costs_.forward,
        costs_.backward_inputs, costs_.backward_weights, costs_.link);
    put("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"q\">{}</text>\n", kLeft, top + 34, footer);
    make_room(kLeft, footer, 11);
  }

  const Schedule& s_;
  const Costs& costs_;
  const Verdict& verdict_;
  Timeline line_;
  double unit_ = 0, width_ = 0, bottom_ = 0;
  std::set<Work> used_;
  int shades_ = 1;
  bool waits_ = false;
  std::string svg_;
};

}  // namespace

std::string draw_svg(const Schedule& schedule, const Costs& costs) {
  const Verdict verdict = verify(schedule);
  if (!verdict.matches) {
    throw Error(ErrorCode::unproven_plan,
                fmt::format("the schedule {} cannot be drawn: {}", schedule.name, verdict.story));
  }
  constexpr std::uint64_t kMostActions = 100'000;
  if (verdict.actions > kMostActions) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("the schedule {} has {} actions, too many for a picture: at most {} are "
                    "drawn; draw one for fewer ranks or micro-batches",
                    schedule.name, verdict.actions, kMostActions));
  }
  return Picture(schedule, costs, verdict).draw();
}

}  // namespace tutti::parallel::pipeline
