#include "tools/top/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

#include "core/number.h"
#include "core/proc.h"
#include "transport/sockets/socket.h"

namespace tutti::top {
namespace {

struct LauncherNames {
  const char *rank, *size;
  std::array<const char*, 2> job;  // variables that its ranks share, and other jobs' do not
};
constexpr LauncherNames kLaunchers[] = {
    {"TUTTI_RANK", "TUTTI_SIZE", {"TUTTI_UNIQUE_ID", "TUTTI_ID_FILE"}},
    {"RANK", "WORLD_SIZE", {"MASTER_ADDR", "MASTER_PORT"}},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", {"PMIX_NAMESPACE", "PMIX_NAMESPACE"}},
    {"PMI_RANK", "PMI_SIZE", {"PMI_JOBID", "PMI_ID"}},
    {"SLURM_PROCID", "SLURM_NTASKS", {"SLURM_JOB_ID", "SLURM_STEP_ID"}},
};

}  // namespace

std::optional<std::string_view> value_in(std::string_view environment, std::string_view name) {
  while (!environment.empty()) {
    const std::string_view entry = environment.substr(0, environment.find('\0'));
    if (entry.size() > name.size() && entry.starts_with(name) && entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
    environment.remove_prefix(std::min(environment.size(), entry.size() + 1));
  }
  return std::nullopt;
}

std::string command_of(int pid, std::size_t most) {
  std::string text = read_proc(pid, "cmdline");
  while (!text.empty() && text.back() == '\0') text.pop_back();
  // The program's folder says little.
  const std::size_t end = std::min(text.find('\0'), text.size());
  const std::size_t slash = text.rfind('/', end);
  if (slash != std::string::npos && slash < end) text.erase(0, slash + 1);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  }
  if (text.empty()) text = read_proc(pid, "comm");
  while (!text.empty() && text.back() == '\n') text.pop_back();
  if (text.size() > most) text = text.substr(0, most - 3) + "...";
  return text;
}

std::optional<Doing> doing_of(int pid) {
  const std::string stat = read_proc(pid, "stat");
  std::string_view rest = after_name(stat);
  const auto skip = [&](int fields) {
    for (int i = 0; i < fields; ++i) take_word(rest);
  };
  const std::string_view state = take_word(rest);
  const auto parent = parse_number<int>(take_word(rest));
  skip(9);
  const auto user = parse_number<std::uint64_t>(take_word(rest));
  const auto system = parse_number<std::uint64_t>(take_word(rest));
  skip(6);
  const auto started = parse_number<std::uint64_t>(take_word(rest));
  if (state.empty() || !parent || !user || !system || !started) return std::nullopt;
  Doing doing{.state = state.front(), .parent = *parent, .started = *started, .sleeps_in = ""};
  doing.cpu_seconds =
      static_cast<double>(*user + *system) / static_cast<double>(sysconf(_SC_CLK_TCK));
  if (doing.state == 'S' || doing.state == 'D') {
    doing.sleeps_in = read_proc(pid, "wchan");
    if (doing.sleeps_in == "0") doing.sleeps_in.clear();
  }
  return doing;
}

int own_number_of(int pid) {
  const std::string status = read_proc(pid, "status");
  const std::size_t at = status.find("\nNSpid:");
  if (at == std::string::npos) return pid;
  const std::string_view line =
      std::string_view(status).substr(at + 1, status.find('\n', at + 1) - at - 1);
  return parse_number<int>(line.substr(line.find_last_of(" \t") + 1)).value_or(pid);
}

std::optional<Launched> launched_as(int pid) {
  const std::string environment = read_proc(pid, "environ");
  for (const LauncherNames& names : kLaunchers) {
    const auto number = [&](const char* name) {
      const auto text = value_in(environment, name);
      return text ? parse_number<int>(*text) : std::nullopt;
    };
    const auto rank = number(names.rank), size = number(names.size);
    if (!rank || !size || *rank < 0 || *rank >= *size) continue;
    std::string job;
    for (const char* name : names.job) {
      job += value_in(environment, name).value_or("");
      job += '\n';
    }
    return Launched{*rank, *size, std::hash<std::string>{}(job) | 1};
  }
  return std::nullopt;
}

bool descends_from(int pid, int ancestor) {
  for (int steps = 0; pid > 0 && steps < 100; ++steps) {
    if (pid == ancestor) return true;
    const auto doing = doing_of(pid);
    if (!doing) return false;
    pid = doing->parent;
  }
  return false;
}

bool has_mapped(int pid, const char* name) {
  return read_proc(pid, "maps").find(name) != std::string::npos;
}

}  // namespace tutti::top
