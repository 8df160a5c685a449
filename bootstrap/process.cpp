// See process.h.
#include "bootstrap/process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <ctime>
#include <string_view>

#include "core/number.h"
#include "core/proc.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

/// The texts in what the kernel writes of a process: each ends with a zero.
std::vector<std::string> texts_in(std::string_view bytes) {
  std::vector<std::string> texts;
  while (!bytes.empty()) {
    const std::size_t end = std::min(bytes.find('\0'), bytes.size());
    texts.emplace_back(bytes.substr(0, end));
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  return texts;
}

}  // namespace

std::string start_ticks(pid_t pid) {
  std::string ticks = stat_field(std::to_string(pid), 22);
  return ticks.empty() ? "?" : ticks;
}

std::chrono::milliseconds age_of(pid_t pid) {
  using namespace std::chrono;
  const auto ticks = parse_number<long>(start_ticks(pid));
  const long per_second = ::sysconf(_SC_CLK_TCK);
  timespec since_boot{};
  if (!ticks || per_second <= 0 || ::clock_gettime(CLOCK_BOOTTIME, &since_boot) != 0) return 0ms;
  const milliseconds started(*ticks * 1000 / per_second);
  const milliseconds age = seconds(since_boot.tv_sec) +
                           duration_cast<milliseconds>(nanoseconds(since_boot.tv_nsec)) - started;
  return std::max(age, 0ms);
}

std::chrono::system_clock::time_point process_start() {
  return std::chrono::system_clock::now() - age_of(own_proc_id());
}

std::vector<pid_t> ancestors_of(pid_t pid) {
  constexpr std::size_t kMost = 256;  // processes come and go while this looks
  std::vector<pid_t> ancestors;
  while (ancestors.size() < kMost) {
    pid = parse_number<pid_t>(stat_field(std::to_string(pid), 4)).value_or(0);
    if (pid <= 1) break;
    ancestors.push_back(pid);
  }
  return ancestors;
}

std::vector<std::string> command_of(pid_t pid) {
  std::array<char, 4096> file;
  const ssize_t length =
      ::readlink(fmt::format("/proc/{}/exe", pid).c_str(), file.data(), file.size());
  if (length <= 0) return {};
  std::vector<std::string> words{std::string(file.data(), static_cast<std::size_t>(length))};
  for (std::string& word : texts_in(read_proc(pid, "cmdline"))) words.push_back(std::move(word));
  return words;
}

Entries environment_of(pid_t pid) {
  const auto entries = texts_in(read_proc(pid, "environ"));
  return {entries.begin(), entries.end()};
}

}  // namespace tutti
