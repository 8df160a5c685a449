// Makes the plan block (plan_block.h) of a rank's plan and a call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "execute/cuda/plan_block.h"
#include "execute/cuda/protocol.h"
#include "execute/program.h"

namespace tutti::device {

/// What a plan is bound to.
struct DeviceCall : BoundCall {  // whose buffers' bases do not matter
  Choice choice;
  bool scales = false;  // the reduction divides or multiplies its inputs
  std::uint32_t plan_channels = 1;
};

/// Throws Error(invalid_argument) for a plan that is too large for a kernel (kMostEnds,
/// kMostOperands) or uses a channel beyond plan_channels.
std::vector<std::byte> build_plan_block(const DeviceCall& call);

}  // namespace tutti::device
