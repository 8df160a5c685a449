// The look of the drawing: the colours of steps, their labels, and the places of everything.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/draw/schedule.h"
#include "collectives/plan.h"

namespace tutti::drawing {

/// The kind of a step, for a reader.
enum class StepKind : std::uint8_t { send, reduce, complete, store, pass_on, sync };
inline constexpr int kStepKinds = 6;

struct StepStyle {
  std::string_view css;
  std::string_view legend;
  std::string_view fill;
  std::string_view ink;  // of the label
};

/// By StepKind. The fills can be told apart without colour vision, too: they differ in lightness.
inline constexpr std::array<StepStyle, kStepKinds> kStepStyles = {{
    {"send", "send", "#7fb8e6", "#0b2f4d"},
    {"reduce", "reduce", "#f3b64c", "#4d3200"},
    {"complete", "reduce, complete", "#d9622b", "#ffffff"},
    {"store", "store", "#4db38c", "#06281c"},
    {"pass", "store and send on", "#1f7f86", "#ffffff"},
    {"sync", "signal or wait", "#b9bec6", "#2b3038"},
}};

StepKind step_kind(const RankPlan& rank, const Step& step);

/// The text in a step's box: the chunks of this rank's memory that it moves. If in and out have a
/// common numbering (that of the in-place call), a chunk keeps its number on its way, so a reader
/// can follow it; otherwise the text names the buffer. Empty for a step that only passes something
/// on.
std::string step_label(const RankPlan& rank, const Step& step);

/// The width of the outline of a step that never starts, in units of time.
inline constexpr double kStuckStep = 0.6;

/// The places of everything, in pixels.
struct DrawLayout {
  static DrawLayout of(const Plan& plan, const Schedule& schedule);

  bool detailed = true;
  std::size_t ranks = 0;  // drawn
  std::size_t lanes = 1;  // of every rank
  double span = 0;        // of time
  double unit = 0;        // of time
  double lane_height = 0;
  double gap = 0;  // between ranks
  double left = 104;
  double top = 104;
  double bottom = 0;
  double width = 0;
  double height = 0;

  /// What a box is narrower than its time, so that arrowheads show between boxes.
  double room() const { return detailed ? std::min(unit / 12, 5.0) : 0; }
  double band() const { return static_cast<double>(lanes) * lane_height; }
  double x(double time) const { return left + time * unit; }
  double band_y(std::size_t rank) const {
    return top + gap / 2 + static_cast<double>(rank) * (band() + gap);
  }
  double lane_y(std::size_t rank, std::size_t lane) const {
    return band_y(rank) + static_cast<double>(lane) * lane_height;
  }
};

}  // namespace tutti::drawing
