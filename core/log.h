// Log lines go to standard error through spdlog, at the level of the setting TUTTI_LOG (default:
// warn). Formatting is fmt's. Tutti never writes to standard output.
#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

namespace tutti {

/// The library's own logger (not spdlog's default one); made on first use.
spdlog::logger& log();

/// Whether TUTTI_LOG may be `text`.
bool is_log_level(std::string_view text);

}  // namespace tutti
