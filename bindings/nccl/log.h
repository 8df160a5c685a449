// NCCL_DEBUG and NCCL_DEBUG_FILE: the log that users of NCCL know, in its format. Tutti's own log
// (TUTTI_LOG) is separate.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tutti::nccl {

enum class LogLevel : std::uint8_t { none, version, warn, info, trace };

/// Whether NCCL_DEBUG asks for `level`. Reads the environment once, until reset_log().
bool logs(LogLevel level);
/// A line on NCCL_DEBUG_FILE, or on standard output as NCCL does.
void write_log(LogLevel level, std::string_view text);
/// Reads the environment again.
void reset_log();

/// The NCCL_ variables that do something here (docs/nccl.md).
std::span<const char* const> known_variables();

/// Once for a process: the version, and the NCCL_ variables that have no meaning here.
void log_start();

}  // namespace tutti::nccl
