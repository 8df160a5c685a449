#include "bindings/nccl/log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>

#include "bindings/nccl/export.h"
#include "bindings/nccl/nccl.h"
#include "core/file_descriptor.h"
#include "core/module.h"

extern char** environ;

namespace tutti::nccl {
namespace {

constexpr int kUnread = -1;

struct Log {
  std::mutex mutex;
  std::atomic<int> level{kUnread};
  std::FILE* file = nullptr;
};

Log& log() {
  static auto* instance = new Log;  // never destroyed: threads may log during exit
  return *instance;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "?";
  const std::string text(name.data());
  return text.substr(0, text.find('.'));
}

LogLevel level_from_environment() {
  const char* value = std::getenv("NCCL_DEBUG");
  std::string text = value != nullptr ? value : "";
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (text == "VERSION") return LogLevel::version;
  if (text == "WARN") return LogLevel::warn;
  if (text == "INFO" || text == "ABORT") return LogLevel::info;
  if (text == "TRACE") return LogLevel::trace;
  return LogLevel::none;
}

/// NCCL_DEBUG_FILE with %h as the host and %p as the process.
std::FILE* file_from_environment() {
  const char* value = std::getenv("NCCL_DEBUG_FILE");
  if (value == nullptr || *value == '\0') return stdout;
  std::string name;
  for (const char* c = value; *c != '\0'; ++c) {
    if (*c != '%') {
      name += *c;
    } else if (*++c == 'h') {
      name += host_name();
    } else if (*c == 'p') {
      name += std::to_string(::getpid());
    } else if (*c == '%') {
      name += '%';
    } else {
      name += '%';
      --c;  // not ours; also the end of the text
    }
  }
  // The program's own text must not get there, where its standard output is closed.
  const int fd =
      above_standard(::open(name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  std::FILE* file = fd < 0 ? nullptr : ::fdopen(fd, "w");
  if (file == nullptr) return stdout;
  std::setvbuf(file, nullptr, _IOLBF, BUFSIZ);  // a reader sees lines while the program runs
  return file;
}

void read_environment(Log& l) {
  if (l.file != nullptr && l.file != stdout) std::fclose(l.file);
  const LogLevel level = level_from_environment();
  l.file = level == LogLevel::none ? nullptr : file_from_environment();
  l.level.store(static_cast<int>(level), std::memory_order_release);
}

bool is_known(std::string_view name) {
  const auto known = known_variables();
  return std::find(known.begin(), known.end(), name) != known.end();
}

void log_version_and_variables() {
  write_log(LogLevel::version, fmt::format("NCCL version {}.{}.{} (Tutti {})", NCCL_MAJOR,
                                           NCCL_MINOR, NCCL_PATCH, TUTTI_VERSION));
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('='));
    if (!name.starts_with("NCCL_")) continue;
    write_log(LogLevel::info,
              is_known(name) ? fmt::format("{} is set by the environment", text)
                             : fmt::format("{} has no meaning for host memory; ignored", text));
  }
}

}  // namespace

std::span<const char* const> known_variables() {
  static constexpr std::array kNames = {"NCCL_DEBUG",         "NCCL_DEBUG_FILE",   "NCCL_COMM_ID",
                                        "NCCL_ALGO",          "NCCL_PROTO",        "NCCL_MAX_CTAS",
                                        "NCCL_SOCKET_IFNAME", "NCCL_COMM_BLOCKING"};
  return kNames;
}

bool logs(LogLevel level) {
  Log& l = log();
  int now = l.level.load(std::memory_order_acquire);
  if (now == kUnread) {
    const std::lock_guard lock(l.mutex);
    if (l.level.load(std::memory_order_relaxed) == kUnread) read_environment(l);
    now = l.level.load(std::memory_order_relaxed);
  }
  return now >= static_cast<int>(level);
}

void write_log(LogLevel level, std::string_view text) {
  if (!logs(level)) return;
  constexpr std::array kNames = {"", "", "WARN", "INFO", "TRACE"};
  static const auto& host = *new std::string(host_name());  // never destroyed either
  std::string line;
  if (level == LogLevel::version) {
    line = fmt::format("{}\n", text);
  } else {
    line = fmt::format("{}:{}:{} NCCL {} {}\n", host, ::getpid(), ::syscall(SYS_gettid),
                       kNames[static_cast<std::size_t>(level)], text);
  }
  Log& l = log();
  const std::lock_guard lock(l.mutex);
  if (l.file == nullptr) return;
  std::fwrite(line.data(), 1, line.size(), l.file);
  std::fflush(l.file);
}

void reset_log() {
  Log& l = log();
  const std::lock_guard lock(l.mutex);
  read_environment(l);
}

void log_start() {
  static std::once_flag released, listed;
  std::call_once(released, [] { log_release("NCCL's interface of Tutti " TUTTI_VERSION); });
  if (logs(LogLevel::version)) std::call_once(listed, log_version_and_variables);
}

}  // namespace tutti::nccl

NCCL_API(void, ncclResetDebugInit, (void)) { tutti::nccl::reset_log(); }

// Not in nccl.h, and without a pncclX; NVIDIA's library has it, too.
extern "C" __attribute__((visibility("default"))) void ncclResetDebugInitInternal(void);
extern "C" void ncclResetDebugInitInternal(void) { tutti::nccl::reset_log(); }
