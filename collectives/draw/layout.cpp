#include "collectives/draw/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "collectives/draw/draw.h"

namespace tutti::drawing {

StepKind step_kind(const RankPlan& rank, const Step& step) {
  if (step.count == 0) return StepKind::sync;
  if (step.completes) return StepKind::complete;
  if (step.sources > 1) return StepKind::reduce;
  const auto destinations = rank.destinations(step);
  const auto links = std::count_if(destinations.begin(), destinations.end(),
                                   [](const Operand& o) { return o.is_link(); });
  if (links == 0) return StepKind::store;
  return static_cast<std::size_t>(links) == destinations.size() ? StepKind::send
                                                                : StepKind::pass_on;
}

namespace {

/// The step's first operand in `spaces` of this rank's memory, destinations before sources.
const Operand* own_operand(const RankPlan& rank, const Step& step,
                           std::initializer_list<Space> spaces) {
  for (const auto side : {rank.destinations(step), rank.sources(step)}) {
    for (const Operand& o : side) {
      if (!o.is_remote() && std::find(spaces.begin(), spaces.end(), o.space) != spaces.end()) {
        return &o;
      }
    }
  }
  return nullptr;
}

}  // namespace

std::string step_label(const RankPlan& rank, const Step& step) {
  if (step.count == 0) return step.sources == 0 ? "signal" : step.destinations == 0 ? "wait" : "";
  const auto label = [&](std::string_view buffer, std::uint64_t first) {
    if (step.count == 1) return fmt::format("{}{}", buffer, first);
    return fmt::format("{}{}-{}", buffer, first, first + step.count - 1);
  };
  const Operand* o = own_operand(rank, step, {Space::in, Space::out});
  if (o == nullptr) {
    o = own_operand(rank, step, {Space::tmp});
    return o == nullptr ? "" : label("tmp ", o->chunk);
  }
  const bool is_in = o->space == Space::in;
  const std::uint64_t in_own_block =
      o->chunk + std::uint64_t{rank.header.pieces} * static_cast<std::uint64_t>(rank.rank);
  switch (rank.header.collective) {
    case Collective::all_gather:
    case Collective::all_gather_v:
    case Collective::gather:
      return label("", is_in ? in_own_block : o->chunk);
    case Collective::reduce_scatter:
    case Collective::reduce_scatter_v:
    case Collective::scatter:
      return label("", is_in ? o->chunk : in_own_block);
    case Collective::all_to_all:
    case Collective::all_to_all_v:
    case Collective::send_recv:
      return label(is_in ? "in " : "out ", o->chunk);
    default:
      return label("", o->chunk);
  }
}

DrawLayout DrawLayout::of(const Plan& plan, const Schedule& schedule) {
  DrawLayout at;
  at.detailed = plan.ranks.size() <= DrawLimits::detailed_ranks &&
                schedule.steps <= DrawLimits::detailed_steps;
  if (is_rooted(plan.header.collective)) at.left += 14;
  at.ranks = std::min(plan.ranks.size(), DrawLimits::compact_ranks);
  for (std::size_t r = 0; r < at.ranks; ++r) {
    at.lanes = std::max(at.lanes, plan.ranks[r].lanes.size());
  }
  at.span = std::max(schedule.end + (schedule.never_start == 0 ? 0 : kStuckStep), 1.0);
  const auto rows = static_cast<double>(std::max<std::size_t>(at.ranks * at.lanes, 1));
  if (at.detailed) {
    at.unit = std::clamp(1700 / at.span, 34.0, 92.0);
    at.lane_height = 24;
    at.gap = rows <= 10 ? 20 : 14;
  } else {
    at.unit = 1500 / at.span;
    at.lane_height = std::clamp(760 / rows, 0.75, 24.0);
    if (at.lanes > 1) {
      at.gap = at.lane_height;
    } else if (at.lane_height >= 4) {
      at.gap = at.lane_height / 4;
    }
  }
  constexpr double kTextWidth = 960;  // the notes below, in the widest of the fonts
  at.width = std::max(at.left + at.span * at.unit + 40, kTextWidth);
  at.bottom = at.top + static_cast<double>(at.ranks) * (at.band() + at.gap);
  at.height = at.bottom + 96;
  return at;
}

}  // namespace tutti::drawing
