// Building a Network.
#include "collectives/verify/network.h"

#include "collectives/verify/form.h"
#include "collectives/verify/story.h"

namespace tutti::proof {
namespace {

const Plan& with_sound_header(const Plan& plan) {
  check_header(plan);
  return plan;
}

}  // namespace

Network::Network(const Plan& p, bool in_place)
    : plan(with_sound_header(p)), buffers(plan, in_place) {
  Form(*this).check();
}

std::string Network::step_name(std::uint32_t lane, std::uint32_t index) const {
  const NetworkLane& l = lanes[lane];
  return proof::step_name(plan, l.rank, l.lane, index - l.first_step);
}

}  // namespace tutti::proof
