// Environment variables that a log shows, in command lines and as NCCL says what it read: which
// network and ports there are, and which algorithm NCCL is told to take.
#pragma once

#include <string_view>

#include "tools/cluster/log_words.h"
#include "tools/cluster/nccl_debug.h"

namespace tutti {

/// "-x NCCL_ALGO=Ring", "export NCCL_IB_HCA=mlx5_0,mlx5_1": reads a line of a shell. False: the
/// line has no such word.
bool read_command(std::string_view line, NcclDebug& debug);

/// "NCCL INFO NCCL_ALGO set by environment to RING."
void read_said_setting(const Words& words, NcclDebug& debug);

}  // namespace tutti
