// Embedding a plan as a stage of a larger one.
#include "collectives/algorithms/embed.h"

#include <string>

#include "core/error.h"

namespace tutti::algorithm {
namespace {

class Renaming {
 public:
  Renaming(const RankPlan& part, const Placement& placement)
      : part_(part), to_(placement), scale_(placement.pieces / part.header.pieces) {}

  std::uint32_t count(const Step& step) const { return step.count * scale_; }

  Operand operand(const Step& step, Operand o) const {
    if (o.is_link()) {
      o.rank = to_.ranks[static_cast<std::size_t>(o.rank)];
      return o;
    }
    if (o.space == Space::tmp) {
      if (o.is_remote()) refuse("addresses the tmp of other ranks");
      o.chunk = to_.tmp + o.chunk * scale_;
      return o;
    }
    const int owner = o.is_remote() ? o.rank : part_.rank;
    const Region region = o.space == Space::in ? to_.in(owner) : to_.out(owner);
    o.chunk = chunk(region, step, o.chunk);
    o.space = region.space;
    if (o.is_remote()) o.rank = to_.ranks[static_cast<std::size_t>(owner)];
    return o;
  }

  Operand shape(const Step& step) const {
    const Region& region = step.shape_space == Space::in ? to_.in_shape : to_.out_shape;
    return {region.space, 0, 0, Operand::kSelf, chunk(region, step, step.shape_chunk)};
  }

 private:
  std::uint32_t chunk(const Region& region, const Step& step, std::uint32_t c) const {
    const std::uint32_t pieces = part_.header.pieces;
    const bool within_a_block = c % pieces + step.count <= pieces;
    if (!within_a_block && region.stride != to_.pieces) {
      refuse("moves several blocks at once, which are apart here");
    }
    return region.first + c / pieces * region.stride + c % pieces * scale_;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(ErrorCode::invalid_argument, std::string(name(part_.header.collective)) + " by '" +
                                                 part_.header.algorithm +
                                                 "' cannot be a stage of this plan: it " + why);
  }

  const RankPlan& part_;
  const Placement& to_;
  std::uint32_t scale_;
};

}  // namespace

void embed(RankPlanBuilder& builder, const RankPlan& part, const Placement& placement) {
  const Renaming renaming(part, placement);
  std::vector<Operand> destinations;
  std::vector<Operand> sources;
  for (std::uint32_t l = 0; l < part.lanes.size(); ++l) {
    for (const Step& step : part.lanes[l]) {
      destinations.clear();
      sources.clear();
      for (const Operand& o : part.destinations(step)) {
        destinations.push_back(renaming.operand(step, o));
      }
      for (const Operand& o : part.sources(step)) sources.push_back(renaming.operand(step, o));
      if (step.count == 0) {
        builder.lane(l).step(destinations, sources);
        continue;
      }
      if (sources.size() == 1) std::erase(destinations, sources.front());
      if (destinations.empty()) continue;
      builder.lane(l)
          .step(destinations, sources)
          .span(renaming.count(step))
          .shaped_as(renaming.shape(step))
          .completes(step.completes && placement.completes);
    }
  }
}

void join_lanes(RankPlanBuilder& builder, std::uint32_t lanes, int rank) {
  const auto channel = [](std::uint32_t c) { return static_cast<std::uint8_t>(c); };
  std::vector<Operand> come;
  std::vector<Operand> go;
  for (std::uint32_t l = 1; l < lanes; ++l) {
    come.push_back(from(rank, channel(l - 1)));
    go.push_back(to(rank, channel(lanes - 1 + l - 1)));
    builder.lane(l).step(std::vector{come.back()}, {});
    builder.lane(l).step({}, std::vector{go.back()});
  }
  if (lanes == 1) return;
  builder.lane(0).step({}, come);
  builder.lane(0).step(go, {});
}

}  // namespace tutti::algorithm
