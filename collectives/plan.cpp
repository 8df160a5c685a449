#include "collectives/plan.h"

#include <utility>

#include "core/error.h"

namespace tutti {

bool sends_wide(const RankPlan& plan, const Step& step) {
  if (step.completes) return false;
  if (step.sources != 1) return true;
  const Operand& only = plan.sources(step)[0];
  return !only.is_link() && only.space != Space::out;
}

RankPlanBuilder::RankPlanBuilder(PlanHeader header, int rank) {
  plan_.lanes.resize(header.lanes);
  plan_.header = std::move(header);
  plan_.rank = rank;
}

std::uint32_t RankPlanBuilder::reserve_tmp(std::uint32_t n) {
  const std::uint32_t first = plan_.tmp_chunks;
  plan_.tmp_chunks += n;
  return first;
}

RankPlan RankPlanBuilder::finish() { return std::move(plan_); }

Step& RankPlanBuilder::StepRef::get() { return b_.plan_.lanes[lane_][index_]; }

RankPlanBuilder::StepRef& RankPlanBuilder::StepRef::span(std::uint32_t n) {
  get().count = n;
  return *this;
}

RankPlanBuilder::StepRef& RankPlanBuilder::StepRef::shaped_as(Operand memory) {
  get().shape_space = memory.space;
  get().shape_chunk = memory.chunk;
  return *this;
}

RankPlanBuilder::StepRef& RankPlanBuilder::StepRef::completes(bool yes) {
  get().completes = yes;
  return *this;
}

RankPlanBuilder::StepRef RankPlanBuilder::LaneRef::step(std::span<const Operand> destinations,
                                                        std::span<const Operand> sources) {
  if (lane_ >= b_.plan_.lanes.size())
    throw Error(ErrorCode::internal, "a plan's lane is out of range");
  if (destinations.size() > 0xffff || sources.size() > 0xffff) {
    throw Error(ErrorCode::invalid_argument, "a plan's step has more than 65,535 operands");
  }
  Step step;
  step.first_operand = static_cast<std::uint32_t>(b_.plan_.operands.size());
  step.destinations = static_cast<std::uint16_t>(destinations.size());
  step.sources = static_cast<std::uint16_t>(sources.size());
  // A step moves data when it has a source and a destination; else it is a signal or a wait.
  step.count = destinations.empty() || sources.empty() ? 0 : 1;
  bool shaped = false;
  for (const auto side : {destinations, sources}) {
    for (Operand o : side) {
      if (o.is_link() && o.channel == Operand::kLaneChannel)
        o.channel = static_cast<std::uint8_t>(lane_);
      if (!o.is_link() && o.rank == b_.plan_.rank) o.rank = Operand::kSelf;
      if (!shaped && !o.is_link() && !o.is_remote() && o.space != Space::tmp) {
        step.shape_space = o.space;
        step.shape_chunk = o.chunk;
        shaped = true;
      }
      b_.plan_.operands.push_back(o);
    }
  }
  auto& lane = b_.plan_.lanes[lane_];
  lane.push_back(step);
  return StepRef(b_, lane_, lane.size() - 1);
}

RankPlanBuilder::StepRef RankPlanBuilder::LaneRef::signal(std::span<const int> peers,
                                                          std::uint8_t channel) {
  std::vector<Operand> links;
  for (int peer : peers) links.push_back(to(peer, channel));
  return step(links, {});
}

RankPlanBuilder::StepRef RankPlanBuilder::LaneRef::wait(std::span<const int> peers,
                                                        std::uint8_t channel) {
  std::vector<Operand> links;
  for (int peer : peers) links.push_back(from(peer, channel));
  return step({}, links);
}

}  // namespace tutti
