// See topology.h. Sizes are made from the inside out: a box is as large as its contents, in rows;
// then places from the outside in. Lines go under the boxes, so that they hide no text.
#include "collectives/draw/topology.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "core/svg.h"
#include "topology/show/text.h"

namespace tutti {
namespace {

using namespace topology;

constexpr double kNoteLetter = 6.2;  // the width of one, at most
constexpr double kLeastNote = 60;    // letters of a line
constexpr double kLeafWidth = 104, kLeafHeight = 50;
constexpr double kGap = 8, kTitle = 18, kMargin = 20;
constexpr double kSwitchHeight = 34;
constexpr double kDomainWidth = 8 * (kLeafWidth + kGap);  // leaves of a NUMA domain in a row
constexpr double kHostsWidth = 2400;
constexpr int kMostLabels = 40;  // of links between GPUs; more would only cover each other
constexpr std::size_t kMostDoubts = 12;
constexpr int kMostLinesOfNote = 4;

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

class Picture {
 public:
  explicit Picture(const Graph& graph) : g_(graph), boxes_(graph.nodes().size()) {
    children_.resize(g_.nodes().size());
    for (int n = 0; n < size(); ++n) {
      const int parent = g_.node(n).parent;
      if (parent >= 0) children_[at(parent)].push_back(n);
    }
  }

  std::string draw() {
    double height = kMargin + 24;
    place_hosts(height);
    place_racks(height);
    for (const Link& l : g_.links()) height = std::max(height, bottom_of(l) - 6);
    const double legend = height + 14;
    const std::string title = fmt::format("{} ({})", g_.source, g_.format);
    width_ = std::max({width_, kMargin + 7.5 * static_cast<double>(title.size()),
                       kMargin + kLeastNote * kNoteLetter});
    const auto notes = notes_below();
    height = legend + 4 + 16.0 * static_cast<double>(notes.size());
    svg_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
        "viewBox=\"0 "
        "0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" font-size=\"11\">\n"
        "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        width_ + kMargin, height + kMargin);
    text(kMargin, kMargin + 4, title, 13, "#000");
    // Containers, then lines, then what the lines must not cover.
    for (int n = 0; n < size(); ++n) {
      if (is_container(n)) draw_container(n);
    }
    draw_lines();
    for (int n = 0; n < size(); ++n) {
      if (!is_container(n)) draw_leaf(n);
    }
    double y = legend - 16;
    for (const auto& [line, colour] : notes) text(kMargin, y += 16, line, 11, colour);
    return svg_ + "</svg>\n";
  }

 private:
  static std::size_t at(int n) { return static_cast<std::size_t>(n); }
  int size() const { return static_cast<int>(g_.nodes().size()); }
  NodeKind kind(int n) const { return g_.node(n).kind; }

  /// Ports are written into their NIC's box.
  bool is_container(int n) const {
    return kind(n) == NodeKind::host || kind(n) == NodeKind::numa || kind(n) == NodeKind::root ||
           kind(n) == NodeKind::bridge || kind(n) == NodeKind::device;
  }

  // --- Layout ------------------------------------------------------------------------------------

  std::vector<int> inside(int n) const {
    std::vector<int> shown;
    for (const int c : children_[at(n)]) {
      if (kind(c) != NodeKind::port && kind(c) != NodeKind::gpu_switch) shown.push_back(c);
    }
    return shown;
  }

  double leaf_height(int n) const {
    const auto ports = children_[at(n)].size();
    return kLeafHeight + (kind(n) == NodeKind::nic && ports > 1
                              ? 12.0 * static_cast<double>(std::min<std::size_t>(ports, 5) - 1)
                              : 0);
  }

  void measure(int n) {
    Box& box = boxes_[at(n)];
    if (!is_container(n)) {
      box.width = kLeafWidth;
      box.height = leaf_height(n);
      return;
    }
    const double most = kind(n) == NodeKind::host ? 1e9 : kDomainWidth;
    double x = kGap, y = kTitle + kGap, row = 0, widest = 0;
    for (const int c : inside(n)) {
      measure(c);
      Box& child = boxes_[at(c)];
      if (x > kGap && x + child.width > most) {
        x = kGap;
        y += row + kGap;
        row = 0;
      }
      child.x = x;
      child.y = y;
      x += child.width + kGap;
      widest = std::max(widest, x);
      row = std::max(row, child.height);
    }
    box.width = std::max({widest, kLeafWidth + 2 * kGap, 7.0 * title_of(n).size() + 16});
    box.height = y + row + kGap;
    for (const int c : children_[at(n)]) {
      if (kind(c) != NodeKind::gpu_switch) continue;
      Box& sw = boxes_[at(c)];
      sw = {kGap, box.height + 22, box.width - 2 * kGap, kSwitchHeight};
      box.height += 22 + kSwitchHeight + kGap;
    }
  }

  /// From places in the parent to places in the picture.
  void move(int n, double dx, double dy) {
    boxes_[at(n)].x += dx;
    boxes_[at(n)].y += dy;
    for (const int c : children_[at(n)]) {
      if (kind(c) != NodeKind::port) move(c, boxes_[at(n)].x, boxes_[at(n)].y);
    }
  }

  void place_hosts(double& height) {
    double x = kMargin, row = 0;
    for (int n = 0; n < size(); ++n) {
      if (kind(n) != NodeKind::host) continue;
      measure(n);
      Box& box = boxes_[at(n)];
      if (x > kMargin && x + box.width > kHostsWidth) {
        x = kMargin;
        height += row + 2 * kGap;
        row = 0;
      }
      move(n, x, height);
      x += box.width + 2 * kGap;
      width_ = std::max(width_, x);
      row = std::max(row, box.height);
    }
    height += row + 2 * kGap;
  }

  /// Switches of a rack lie under all of its hosts.
  void place_racks(double& height) {
    for (int n = 0; n < size(); ++n) {
      if (g_.node(n).parent >= 0 || kind(n) == NodeKind::host) continue;
      boxes_[at(n)] = {kMargin, height + 20, width_ - 2 * kMargin, kSwitchHeight};
      height += 20 + kSwitchHeight;
    }
  }

  // --- Drawing -----------------------------------------------------------------------------------

  void text(double x, double y, const std::string& what, double points, const char* colour,
            const char* anchor = "start") {
    svg_ += fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" font-size=\"{}\" fill=\"{}\" "
        "text-anchor=\"{}\">{}</text>\n",
        x, y, points, colour, anchor, drawing::escaped(what));
  }

  void rectangle(const Box& b, const char* fill, const char* stroke, const std::string& title) {
    svg_ += fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"4\" fill=\"{}\" "
        "stroke=\"{}\"><title>{}</title></rect>\n",
        b.x, b.y, b.width, b.height, fill, stroke, drawing::escaped(title));
  }

  const Link* upstream(int n) const {
    for (const int l : g_.out(n)) {
      if (g_.link(l).to == g_.node(n).parent) return &g_.link(l);
    }
    return nullptr;
  }

  std::string title_of(int n) const {
    const Node& node = g_.node(n);
    std::string title = node.name;
    const Link* up = upstream(n);
    if (kind(n) == NodeKind::host) {
      title += node.model.empty() ? "" : " " + node.model;
    } else if (kind(n) == NodeKind::numa) {
      for (const int l : g_.out(n)) {
        if (g_.link(l).kind != LinkKind::socket) continue;
        return title + ", " + bandwidth_text(g_.link(l).bandwidth, g_.link(l).assumed) +
               " to other domains";
      }
    } else if (up != nullptr && up->kind == LinkKind::pci) {
      title += "  " + bandwidth_text(up->bandwidth, up->assumed);
    }
    return title;
  }

  void draw_container(int n) {
    const NodeKind k = kind(n);
    const char* fill = k == NodeKind::host     ? "#fafafa"
                       : k == NodeKind::numa   ? "#eef3fb"
                       : k == NodeKind::bridge ? "#fff6e0"
                       : k == NodeKind::device ? "#e4f2df"
                                               : "#f4f4ee";
    rectangle(boxes_[at(n)], fill, "#99a", g_.node(n).name);
    text(boxes_[at(n)].x + 6, boxes_[at(n)].y + 13, title_of(n), 11, "#445");
  }

  std::string gpu_links_text(int n) const {
    double bandwidth = 0;
    int lanes = 0;
    const char* what = "NV";
    for (const int l : g_.out(n)) {
      const Link& link = g_.link(l);
      if (link.kind != LinkKind::nvlink && link.kind != LinkKind::xgmi) continue;
      bandwidth += link.bandwidth;
      lanes += link.lanes;
      if (link.kind == LinkKind::xgmi) what = "XG";
    }
    return lanes == 0 ? "" : fmt::format("{}{} {}", what, lanes, bandwidth_text(bandwidth));
  }

  void draw_leaf(int n) {
    const Box& b = boxes_[at(n)];
    const Node& node = g_.node(n);
    if (kind(n) == NodeKind::port || kind(n) == NodeKind::network) return;
    if (kind(n) == NodeKind::gpu_switch) {
      rectangle(b, "#d9f0d3", "#5a9a4a", node.name);
      text(b.x + b.width / 2, b.y + 21,
           fmt::format("{}{}", node.name,
                       node.members > 1 ? fmt::format(" ({} switches)", node.members) : ""),
           12, "#243", "middle");
      return;
    }
    const Link* up = upstream(n);
    const std::string pci = up == nullptr || up->kind != LinkKind::pci
                                ? ""
                                : "PCI " + bandwidth_text(up->bandwidth, up->assumed);
    const bool gpu = kind(n) == NodeKind::gpu;
    const std::string address = node.bus ? text_of(*node.bus) : "";
    rectangle(b, gpu ? "#cfe8c6" : "#dcd6f0", gpu ? "#5a9a4a" : "#8070b0",
              fmt::format("{} {} {}", node.name, node.model, address));
    double y = b.y + 14;
    if (gpu) {
      text(b.x + 6, y, node.name, 12, "#000");
      text(b.x + b.width - 4, y, node.model.substr(0, 9), 8, "#465", "end");
      text(b.x + 6, y += 14, pci, 10, "#333");
      text(b.x + 6, y += 14, gpu_links_text(n), 10, "#265a1c");
      return;
    }
    std::size_t shown = 0;
    for (const int port : children_[at(n)]) {
      if (shown++ == 5) break;
      const Link* l = upstream(port);
      text(b.x + 6, y,
           fmt::format("{}{}", g_.node(port).name.substr(0, 18), g_.node(port).up ? "" : " (down)"),
           11, "#000");
      y += 12;
      if (shown == children_[at(n)].size() || shown == 5) {
        text(b.x + 6, y + 2, l == nullptr ? "" : bandwidth_text(l->bandwidth, l->assumed), 10,
             "#333");
        y += 14;
      }
    }
    if (children_[at(n)].size() > 5) {
      text(b.x + b.width - 4, b.y + b.height - 6, fmt::format("+{}", children_[at(n)].size() - 5),
           10, "#333", "end");
    }
    text(b.x + 6, b.y + b.height - 6, pci, 10, "#333");
  }

  void draw_lines() {
    double most = 1;
    int direct = 0;
    for (const Link& l : g_.links()) {
      if (!is_drawn(l)) continue;
      most = std::max(most, l.bandwidth);
      direct += kind(l.to) == NodeKind::gpu_switch ? 0 : 1;
    }
    for (const Link& l : g_.links()) {
      if (!is_drawn(l)) continue;
      const Box &a = boxes_[at(l.from)], &b = boxes_[at(l.to)];
      const char* colour = l.kind == LinkKind::xgmi  ? "#c0504d"
                           : l.kind == LinkKind::c2c ? "#b08000"
                                                     : "#5a9a4a";
      const double width = std::max(0.8, 5 * l.bandwidth / most);
      const std::string title =
          fmt::format("{} - {}: {} x{}, {} each way", g_.node(l.from).name, g_.node(l.to).name,
                      name(l.kind), l.lanes, bandwidth_text(l.bandwidth, l.assumed));
      const double x1 = a.x + a.width / 2, y1 = a.y + a.height;
      std::string path;
      if (kind(l.to) == NodeKind::gpu_switch) {
        path = fmt::format("M{:.1f},{:.1f}V{:.1f}", x1, y1, b.y);
      } else {
        // Under the boxes, the deeper the farther the two are apart.
        const double x2 = b.x + b.width / 2, y2 = b.y + b.height, depth = bottom_of(l);
        path = fmt::format("M{:.1f},{:.1f}C{:.1f},{:.1f} {:.1f},{:.1f} {:.1f},{:.1f}", x1, y1, x1,
                           depth, x2, depth, x2, y2);
      }
      svg_ += fmt::format(
          "<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{:.1f}\" "
          "stroke-opacity=\"0.55\"><title>{}</title></path>\n",
          path, colour, width, drawing::escaped(title));
      if (kind(l.to) != NodeKind::gpu_switch && direct <= kMostLabels) {
        const double middle = (a.y + a.height + b.y + b.height) / 8 + bottom_of(l) * 3 / 4;
        text((x1 + b.x + b.width / 2) / 2, middle + 3, fmt::format("x{}", l.lanes), 9, colour,
             "middle");
      }
    }
  }

  /// How deep the curve between two GPUs may hang.
  double bottom_of(const Link& l) const {
    if (!is_drawn(l) || kind(l.to) == NodeKind::gpu_switch) return 0;
    const Box &a = boxes_[at(l.from)], &b = boxes_[at(l.to)];
    return std::max(a.y + a.height, b.y + b.height) + 14 +
           std::abs(a.x + a.width / 2 - b.x - b.width / 2) / 10;
  }

  /// One line for the two directions of a link between GPUs.
  bool is_drawn(const Link& l) const {
    if (l.kind != LinkKind::nvlink && l.kind != LinkKind::xgmi) return false;
    if (g_.node(l.to).parent == l.from) return false;  // a part, in its device's box
    const bool gpu = kind(l.to) == NodeKind::gpu || kind(l.to) == NodeKind::device;
    return kind(l.to) == NodeKind::gpu_switch || (gpu && l.from < l.to);
  }

  /// What the numbers mean and what was not believed, in lines that end where the picture does.
  std::vector<std::pair<std::string, const char*>> notes_below() const {
    std::vector<std::pair<std::string, const char*>> lines;
    const auto add = [&](std::string_view what, const char* colour) {
      const auto most = static_cast<std::size_t>((width_ - kMargin) / kNoteLetter);
      for (int n = 0; !what.empty() && n < kMostLinesOfNote; ++n) {
        std::size_t end = what.size() <= most ? what.size() : what.rfind(' ', most);
        if (end == std::string_view::npos || end == 0) end = most;
        const bool cut = n + 1 == kMostLinesOfNote && end < what.size();
        lines.emplace_back(std::string(what.substr(0, end)) + (cut ? " ..." : ""), colour);
        what.remove_prefix(end);
        if (what.starts_with(' ')) what.remove_prefix(1);
      }
    };
    add("Bandwidth is what transfers reach, each way; in brackets: not said by the source, taken "
        "from the model. A box's number is its link to the box around it.",
        "#444");
    for (std::size_t d = 0; d < std::min<std::size_t>(g_.doubts.size(), kMostDoubts); ++d) {
      add("not believed: " + g_.doubts[d].what, "#a33");
    }
    if (g_.doubts.size() > kMostDoubts) {
      add(fmt::format("and {} more that are not believed", g_.doubts.size() - kMostDoubts), "#a33");
    }
    return lines;
  }

  const Graph& g_;
  std::vector<Box> boxes_;
  std::vector<std::vector<int>> children_;
  double width_ = 0;
  std::string svg_;
};

}  // namespace

std::string draw_topology(const Graph& graph) { return Picture(graph).draw(); }

}  // namespace tutti
