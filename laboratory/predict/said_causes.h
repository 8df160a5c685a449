// What a log says of causes by other things than its times: by NCCL's lines (NCCL_DEBUG=INFO), and
// by nccl-tests' own.
#pragma once

#include "laboratory/predict/causes.h"
#include "tools/cluster/nccl_log.h"

namespace tutti {

/// `machine` is the one that is expected.
SaidCauses said_causes(const NcclLog& log, const PredictedMachine& machine);

}  // namespace tutti
