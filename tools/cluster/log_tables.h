// From the runs of a log to its tables: which collective, how many ranks on how many hosts. What
// NCCL and nccl-tests say comes first, then what busbw / algbw shows, then the file's name.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tools/cluster/nccl_log.h"

namespace tutti {

/// One run of one program.
struct LogRun {
  std::optional<Collective> collective;
  std::string unpredicted;
  std::set<std::string, std::less<>> hosts;
  std::set<int> ranks;  // that have a line
  int gpus_of_thread = 1;
  std::string gpu;
  std::optional<int> warmups;
  NcclDebug debug;
  std::vector<LogRow> rows;
};

/// By the program's or the file's name.
std::optional<Collective> collective_in(std::string_view text);
/// "hypercube", if the name has it.
std::string no_collective_in(std::string_view text);

/// Runs without rows make no table.
std::vector<NcclLog> tables_of(const std::vector<LogRun>& runs, const std::string& name);

}  // namespace tutti
