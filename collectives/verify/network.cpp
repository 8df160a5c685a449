// Building a Network.
#include "collectives/verify/network.h"

#include "collectives/verify/form.h"
#include "collectives/verify/story.h"

namespace tutti::proof {
namespace {

const PlanParts& with_sound_header(const PlanParts& plan) {
  check_header(plan.header);
  return plan;
}

}  // namespace

Network::Network(const PlanParts& p, bool in_place)
    : plan(with_sound_header(p)), buffers(plan.header, in_place) {
  Form(*this).check();
}

std::string Network::step_name(std::uint32_t lane, std::uint32_t index) const {
  const NetworkLane& l = lanes[lane];
  return proof::step_name(plan.part(l.rank), l.lane, index);
}

Operand Network::operand(std::uint32_t lane, std::uint32_t index, std::size_t i) const {
  const NetworkLane& l = lanes[lane];
  const RankPlan part = plan.part(l.rank);
  return part.operands[part.lanes[l.lane][index].first_operand + i];
}

}  // namespace tutti::proof
