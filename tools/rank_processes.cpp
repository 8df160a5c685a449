// See rank_processes.h.
#include "tools/rank_processes.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "core/number.h"
#include "core/proc.h"
#include "tools/top/process.h"

namespace tutti {
namespace {

/// None: the kernel does not tell.
std::optional<std::vector<pid_t>> children_of(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code error;
  std::filesystem::directory_iterator task(fmt::format("/proc/{}/task", pid), error);
  for (; !error && task != std::filesystem::directory_iterator(); task.increment(error)) {
    const std::filesystem::path file = task->path() / "children";
    if (::access(file.c_str(), F_OK) != 0 && ::access(task->path().c_str(), F_OK) == 0) {
      return std::nullopt;
    }
    const std::string thread = task->path().filename();
    const std::string list = read_proc(pid, "task/" + thread + "/children");
    std::string_view rest = list;
    while (const auto child = parse_number<pid_t>(take_word(rest))) children.push_back(*child);
  }
  return children;
}

/// Each comes after its parent. None: the kernel does not tell.
std::optional<std::vector<pid_t>> descendants() {
  std::vector<pid_t> all{::getpid()};
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto children = children_of(all[i]);
    if (!children) return std::nullopt;
    all.insert(all.end(), children->begin(), children->end());
  }
  all.erase(all.begin());
  return all;
}

/// The rank that it names, if it is one of these; otherwise -1.
int rank_of(pid_t pid, const RanksHere& ranks) {
  const std::string environment = read_proc(pid, "environ");
  if (top::value_in(environment, "TUTTI_UNIQUE_ID") != ranks.id) return -1;
  const auto text = top::value_in(environment, "TUTTI_RANK");
  const auto rank = text ? parse_number<int>(*text) : std::nullopt;
  const bool is_here = rank && *rank >= ranks.first && *rank - ranks.first < ranks.count;
  return is_here ? *rank : -1;
}

}  // namespace

std::vector<RankProcess> processes_from_here(const RanksHere& ranks) {
  if (!proc_is_ours()) return {};
  const auto from_here = descendants();
  if (!from_here) return processes_anywhere(ranks);
  std::vector<RankProcess> result;
  for (const pid_t pid : *from_here) {
    const auto doing = top::doing_of(pid);
    const bool lives = doing && doing->state != 'Z' && doing->state != 'X';
    if (lives) result.push_back({pid, rank_of(pid, ranks), doing->started});
  }
  return result;
}

std::vector<RankProcess> processes_anywhere(const RanksHere& ranks) {
  std::vector<RankProcess> result;
  if (!proc_is_ours()) return result;
  for (const pid_t pid : process_ids()) {  // a zombie has no environment
    if (const int rank = rank_of(pid, ranks); rank >= 0) result.push_back({pid, rank});
  }
  return result;
}

}  // namespace tutti
