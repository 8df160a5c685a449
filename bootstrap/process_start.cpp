// See process_start.h.
#include "bootstrap/process_start.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>

namespace tutti {

std::string start_ticks(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  const std::string stat((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // Field 22; the name (field 2) may hold anything, but ends with the last parenthesis.
  std::size_t at = stat.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = stat.find(' ', at + 1);
  if (at == std::string::npos) return "?";
  return stat.substr(at + 1, stat.find(' ', at + 1) - at - 1);
}

std::chrono::system_clock::time_point process_start() {
  using namespace std::chrono;
  const system_clock::time_point now = system_clock::now();
  const std::string ticks = start_ticks(::getpid());
  const long per_second = ::sysconf(_SC_CLK_TCK);
  timespec since_boot{};
  if (ticks == "?" || per_second <= 0 || ::clock_gettime(CLOCK_BOOTTIME, &since_boot) != 0) {
    return now;
  }
  const milliseconds started(std::strtoll(ticks.c_str(), nullptr, 10) * 1000 / per_second);
  const milliseconds age = seconds(since_boot.tv_sec) +
                           duration_cast<milliseconds>(nanoseconds(since_boot.tv_nsec)) - started;
  return age.count() < 0 ? now : now - age;
}

}  // namespace tutti
