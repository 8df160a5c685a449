// The logger: one line per message on standard error, marked with the process that wrote it.
#include "core/log.h"

#include <spdlog/sinks/stdout_sinks.h>

#include <memory>
#include <string>

#include "core/settings.h"

namespace tutti {
namespace {

spdlog::logger* make_logger() {
  auto logger =
      std::make_unique<spdlog::logger>("tutti", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e tutti[%P] %l: %v");
  const std::string text = setting_text("TUTTI_LOG");
  // The names in the table; spdlog knows more, and takes an unknown one for "off".
  if (text == "off") {
    logger->set_level(spdlog::level::off);
  } else if (text == "error") {
    logger->set_level(spdlog::level::err);
  } else if (text == "info") {
    logger->set_level(spdlog::level::info);
  } else if (text == "debug") {
    logger->set_level(spdlog::level::debug);
  } else {
    logger->set_level(spdlog::level::warn);
    if (text != "warn") {
      // Not an error: what cannot be logged must not stop what is being done.
      logger->warn("TUTTI_LOG=\"{}\" is none of off, error, warn, info, debug; using warn", text);
    }
  }
  return logger.release();
}

}  // namespace

spdlog::logger& log() {
  // Never destroyed: threads may log while the process exits.
  static spdlog::logger* const logger = make_logger();
  return *logger;
}

}  // namespace tutti
