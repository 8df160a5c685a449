// Leftovers of killed processes on this machine.
#pragma once

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace tutti::test {

/// Files of this library in /dev/shm.
inline std::size_t files_left() {
  std::size_t found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    if (entry.path().filename().string().find("tutti") != std::string::npos) ++found;
  }
  return found;
}

/// The same, and its abstract sockets.
inline std::size_t leftovers() {
  std::size_t found = files_left();
  std::ifstream sockets("/proc/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    if (line.find("@tutti") != std::string::npos) ++found;
  }
  return found;
}

/// Whether there are soon no more than `before`: other tests, that run at the same time, have some.
inline bool nothing_is_left(std::size_t before) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (leftovers() > before) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace tutti::test
