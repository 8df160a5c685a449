// Lines of the log (log.h) without spdlog's headers, for code that logs seldom: engines and
// bindings, and whoever compiles them against an installed Tutti.
#pragma once

#include <string_view>

namespace tutti {

/// A whole line, as TUTTI_LOG=warn and =error show it. Any thread.
void log_warning(std::string_view line);
void log_error(std::string_view line);

}  // namespace tutti
