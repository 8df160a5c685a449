// The verdict on a log: its rows beside their predictions, judged, with the likely causes.
#pragma once

#include <string>
#include <vector>

#include "laboratory/predict/causes.h"
#include "laboratory/predict/prediction_table.h"
#include "laboratory/predict/verdict_report.h"

namespace tutti {

/// A call as the log's are: started as nccl-tests was told, and by what NCCL was told to take
/// (NCCL_ALGO, NCCL_PROTO, NCCL_NVLS_ENABLE) if it goes on `machine`; `said` gets that.
NcclCall call_of(const NcclLog& log, const cluster::Cluster& machine, Collective collective,
                 std::string& said);

/// `lines` have rows of `log`, and were predicted of `machine` as `setup` describes it; `call` is
/// one of them.
VerdictReport judge_log(const std::vector<Line>& lines, const cluster::Cluster& machine,
                        const ClusterSetup& setup, const NcclCall& call, const NcclLog& log);

}  // namespace tutti
