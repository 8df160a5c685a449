// The processes that a test has started, and waits for their actions.
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace tutti {

inline bool eventually(const std::function<bool()>& condition,
                       std::chrono::milliseconds limit = std::chrono::seconds(10)) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

/// Of a file, as one of /proc. "": it is gone, perhaps while it was read. (A stream of the standard
/// library would throw.)
inline std::string contents_of(const std::string& path) {
  std::string text;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  char buffer[4096];
  for (ssize_t got = 0; fd >= 0 && (got = read(fd, buffer, sizeof buffer)) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  if (fd >= 0) close(fd);
  return text;
}

/// Processes that are alive (no zombies) and have `mark` in their environment.
inline std::vector<pid_t> marked_processes(const std::string& mark) {
  std::vector<pid_t> result;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string environment = contents_of(entry.path() / "environ");
    if (environment.find(mark) != std::string::npos) result.push_back(std::stoi(name));
  }
  return result;
}

}  // namespace tutti
