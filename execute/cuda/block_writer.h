// From the arrays of a plan block (plan_block.h) to the block: one flat piece of memory.
#pragma once

#include <cstddef>
#include <vector>

#include "execute/cuda/plan_block.h"

namespace tutti::device {

struct BlockParts {
  std::vector<DeviceLane> lanes;
  std::vector<Range> ranges;
  std::vector<DeviceAction> actions;
  std::vector<Use> uses;
  std::vector<End> ends;
  std::vector<DeviceMove> moves;
  std::vector<DeviceOperand> operands;
};

/// `header` with the offsets and the size filled in, and `parts` behind it. Throws
/// Error(invalid_argument) for more than 4 GiB.
std::vector<std::byte> write_block(PlanBlock header, const BlockParts& parts);

}  // namespace tutti::device
