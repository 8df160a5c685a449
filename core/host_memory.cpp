#include "core/host_memory.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <string_view>

#include "core/error.h"
#include "core/host.h"
#include "core/number.h"

namespace tutti {
namespace {

/// The sum of the numbers that follow `words` in a file of lines "word number ...".
std::uint64_t sum_of(const std::string& path, std::initializer_list<std::string_view> words) {
  std::uint64_t sum = 0;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::string_view rest = line;
    const std::string_view word = take_word(rest);
    const auto number = parse_number<std::uint64_t>(take_word(rest));
    if (number && std::find(words.begin(), words.end(), word) != words.end()) sum += *number;
  }
  return sum;
}

/// The one number of a file; `otherwise` where it has none ("max").
std::uint64_t number_in_file(const std::string& path, std::uint64_t otherwise) {
  return parse_number<std::uint64_t>(trimmed(first_line(path))).value_or(otherwise);
}

/// Where control groups say what they have: both versions of the interface.
struct Interface {
  std::string_view controller;  // in /proc/self/cgroup
  std::string_view mount, limit, use, inactive, active;
};
constexpr std::array<Interface, 2> kInterfaces = {{
    {"", "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file", "active_file"},
    {"memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
     "total_inactive_file", "total_active_file"},
}};

/// This process's group: "/a/b"; the root where there is no interface of that kind.
std::string group_of_process(const std::string& root, std::string_view controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "4:memory:/a/b"
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string group = line.substr(second + 1);
    if (line.substr(first + 1, second - first - 1) == controller && group.starts_with('/')) {
      return group;
    }
  }
  return "/";
}

std::string link_text(const std::string& path) {
  std::array<char, 64> text{};
  return readlink(path.c_str(), text.data(), text.size() - 1) > 0 ? text.data() : "";
}

}  // namespace

HostMemory host_memory(const std::string& root) {
  constexpr std::uint64_t kKilo = 1024;  // "kB"
  const std::string info = root + "/proc/meminfo";
  const std::uint64_t all = kKilo * sum_of(info, {"MemTotal:"});
  if (all == 0) return {};
  const std::uint64_t swap = kKilo * sum_of(info, {"SwapTotal:"});
  const std::uint64_t swap_free = kKilo * sum_of(info, {"SwapFree:"});
  HostMemory m{.total = all + swap,
               .available = kKilo * sum_of(info, {"MemAvailable:"}) + swap_free};
  const std::string host = first_line(root + "/proc/sys/kernel/random/boot_id");
  std::string domain = host;
  for (const Interface& i : kInterfaces) {
    // A group has no more than those that it is in.
    std::string group = group_of_process(root, i.controller);
    while (true) {
      const std::string folder = fmt::format("{}{}{}/", root, i.mount, group == "/" ? "" : group);
      const std::uint64_t limit = number_in_file(folder + std::string(i.limit), all);
      if (limit < all) {
        const std::uint64_t use = number_in_file(folder + std::string(i.use), 0);
        // The cache of files can be given up.
        const std::uint64_t cache = sum_of(folder + "memory.stat", {i.inactive, i.active});
        const std::uint64_t left = limit - std::min(limit, use - std::min(use, cache));
        m.total = std::min(m.total, limit + swap);
        if (left + swap_free < m.available) {
          m.available = left + swap_free;
          domain = fmt::format("{} {} {} {}", host, link_text(root + "/proc/self/ns/cgroup"),
                               i.controller, group);
        }
      }
      if (group.size() <= 1) break;
      group.resize(group.rfind('/'));
    }
  }
  m.domain = std::hash<std::string>()(domain);
  return m;
}

void check_file_limit(std::uint64_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || bytes <= limit.rlim_cur) return;
  throw Error(ErrorCode::system,
              fmt::format("{} of shared memory cannot be had: files, and with them shared memory, "
                          "may have {} here; allow more (`ulimit -f`)",
                          memory_text(static_cast<double>(bytes)),
                          memory_text(static_cast<double>(limit.rlim_cur))));
}

std::size_t page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

std::string memory_text(double bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < kUnits.size(); ++unit) bytes /= 1024;
  return fmt::format("{:.4g} {}", bytes, kUnits[unit]);
}

}  // namespace tutti
