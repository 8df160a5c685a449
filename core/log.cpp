// The logger: one line per message on standard error, marked with the process that wrote it.
#include "core/log.h"

#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "core/log_line.h"
#include "core/settings.h"

namespace tutti {
namespace {

// The names in the table of settings; spdlog knows more, and takes an unknown one for "off".
constexpr std::pair<std::string_view, spdlog::level::level_enum> kLevels[] = {
    {"off", spdlog::level::off},
    {"error", spdlog::level::err},
    {"warn", spdlog::level::warn},
    {"info", spdlog::level::info},
    {"debug", spdlog::level::debug}};

spdlog::logger* make_logger() {
  auto logger =
      std::make_unique<spdlog::logger>("tutti", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e tutti[%P] %l: %v");
  logger->set_level(spdlog::level::warn);
  const std::string text = setting_text("TUTTI_LOG");
  for (const auto& [name, level] : kLevels) {
    if (text == name) logger->set_level(level);
  }
  if (!is_log_level(text)) {
    // Not an error: what cannot be logged must not stop what is being done.
    logger->warn("TUTTI_LOG=\"{}\" is none of off, error, warn, info, debug; using warn", text);
  }
  return logger.release();
}

}  // namespace

spdlog::logger& log() {
  // Never destroyed: threads may log while the process exits.
  static spdlog::logger* const logger = make_logger();
  return *logger;
}

void log_warning(std::string_view line) { log().warn(line); }
void log_error(std::string_view line) { log().error(line); }

bool is_log_level(std::string_view text) {
  return std::ranges::any_of(kLevels, [&](const auto& level) { return level.first == text; });
}

}  // namespace tutti
