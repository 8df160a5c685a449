// Log lines go to standard error through spdlog, at the level of the setting TUTTI_LOG (default:
// warn). Formatting is fmt's. Tutti never writes to standard output.
#pragma once

#include <spdlog/spdlog.h>

namespace tutti {

/// The library's own logger (not spdlog's default one); made on first use.
spdlog::logger& log();

}  // namespace tutti
