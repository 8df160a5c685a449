// See doctor_container.h.
#include "tools/doctor/doctor_container.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "core/host.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

std::string text_in(const fs::path& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text, '\0');
  return text;
}

std::string size_text(double bytes) {
  const double mebibytes = bytes / (1 << 20);
  return mebibytes < 10240 ? fmt::format("{:.0f} MiB", mebibytes)
                           : fmt::format("{:.0f} GiB", mebibytes / 1024);
}

/// The group of this process in the hierarchy of `controller` (version 1), or in the unified one
/// ("", version 2): "/kubepods/pod7/abc".
std::optional<std::string> group_of(const fs::path& root, std::string_view controller) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "4:cpu,cpuacct:/group"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    std::istringstream names(line.substr(first + 1, second - first - 1));
    std::string name;
    bool found = controller.empty() && second == first + 1;
    while (std::getline(names, name, ',')) found |= !controller.empty() && name == controller;
    if (found) return line.substr(second + 1);
  }
  return std::nullopt;
}

/// The folders of that group and of the groups above it: their limits hold as well. In a container,
/// the group's path may be that of the host, and only its innermost folder is visible.
std::vector<fs::path> folders_of(const fs::path& mount, const std::string& group) {
  std::vector<fs::path> folders;
  fs::path at = fs::path(group).relative_path();
  while (!at.empty()) {
    folders.push_back(mount / at);
    at = at.parent_path();
  }
  folders.push_back(mount);
  return folders;
}

void take_least(std::optional<double>& least, double value) {
  if (!least || value < *least) least = value;
}

/// The least memory limit of this process's groups, in bytes.
std::optional<double> memory_limit(const fs::path& root) {
  std::optional<double> least;
  const auto read = [&](const fs::path& file) {
    std::istringstream text(text_in(file));
    double bytes = 0;
    if (text >> bytes && bytes < 9e18) take_least(least, bytes);  // "max" is no number
  };
  const fs::path mount = root / "sys/fs/cgroup";
  if (const auto group = group_of(root, "")) {
    for (const fs::path& folder : folders_of(mount, *group)) read(folder / "memory.max");
  }
  if (const auto group = group_of(root, "memory")) {
    for (const fs::path& folder : folders_of(mount / "memory", *group)) {
      read(folder / "memory.limit_in_bytes");
    }
  }
  return least;
}

void show_cores(DoctorReport& report) {
  const auto quota = cores_by_quota();
  const auto allowed = static_cast<double>(allowed_cores().count());
  if (!quota) return report.good("processor time", "not limited by a control group");
  const std::string how = fmt::format("that of {:.3g} cores, on {} cores", *quota, allowed);
  if (*quota >= allowed) return report.good("processor time", how);
  report.bad(
      "processor time", how,
      fmt::format("ranks that wait use it up, and then all stand still for up to 0.1 s: start "
                  "{} ranks at most, and give them cores of their own (a cpuset) or a higher "
                  "limit (docker --cpus, resources.limits.cpu)",
                  std::max(1, static_cast<int>(*quota))));
}

void show_shm(DoctorReport& report) {
  struct statvfs state {};
  if (::statvfs("/dev/shm", &state) != 0) {
    return report.good("/dev/shm", "is not there; Tutti does not need it");
  }
  const auto unit = static_cast<double>(state.f_frsize);
  report.good("/dev/shm", fmt::format("{}, {} free; Tutti does not need it, MPI, NCCL and data "
                                      "loaders do",
                                      size_text(unit * static_cast<double>(state.f_blocks)),
                                      size_text(unit * static_cast<double>(state.f_bavail))));
}

/// The value of a line of /proc/self/status.
std::string status_line(const std::string& name) {
  std::istringstream status(text_in("/proc/self/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":"))
      return line.substr(line.find_first_not_of(" \t", name.size() + 1));
  }
  return "";
}

}  // namespace

std::string container_kind(const fs::path& root) {
  std::error_code none;
  if (fs::exists(root / "var/run/secrets/kubernetes.io", none)) return "of Kubernetes";
  if (fs::exists(root / ".dockerenv", none)) return "of Docker";
  if (fs::exists(root / "run/.containerenv", none)) return "of Podman";
  const std::string groups = text_in(root / "proc/self/cgroup");
  for (const char* const sign : {"kubepods", "docker", "libpod", "lxc", "containerd"}) {
    if (groups.find(sign) != std::string::npos)
      return fmt::format("by its control group ({})", sign);
  }
  std::istringstream variables(text_in(root / "run/systemd/container"));
  std::string kind;
  if (variables >> kind) return fmt::format("({})", kind);
  return "";
}

std::optional<double> cores_by_quota(const fs::path& root) {
  std::optional<double> least;
  const fs::path mount = root / "sys/fs/cgroup";
  if (const auto group = group_of(root, "")) {
    for (const fs::path& folder : folders_of(mount, *group)) {
      std::istringstream text(text_in(folder / "cpu.max"));  // "max 100000", "250000 100000"
      double quota = 0, period = 0;
      if (text >> quota >> period && quota > 0 && period > 0) take_least(least, quota / period);
    }
  }
  if (const auto group = group_of(root, "cpu")) {
    for (const char* const name : {"cpu", "cpu,cpuacct"}) {
      for (const fs::path& folder : folders_of(mount / name, *group)) {
        std::istringstream quota_text(text_in(folder / "cpu.cfs_quota_us"));  // -1: none
        std::istringstream period_text(text_in(folder / "cpu.cfs_period_us"));
        double quota = 0, period = 0;
        if (quota_text >> quota && period_text >> period && quota > 0 && period > 0) {
          take_least(least, quota / period);
        }
      }
    }
  }
  return least;
}

void show_container(DoctorReport& report) {
  report.section("Container, and what it limits (docs/containers.md)");
  const std::string kind = container_kind();
  report.good("container", kind.empty() ? "no sign of one" : "yes, " + kind);
  show_cores(report);
  const auto memory = memory_limit("/");
  report.good("memory", memory
                            ? fmt::format("at most {}, shared memory included", size_text(*memory))
                            : "not limited by a control group");
  show_shm(report);
  const std::string filter = status_line("Seccomp");
  report.good("system calls", filter == "2" ? "filtered (seccomp); see copies by the kernel, above"
                                            : "not filtered");
  std::istringstream users(text_in("/proc/self/uid_map"));
  std::uint64_t inside = 0, outside = 0, count = 0;
  if (users >> inside >> outside >> count && (outside != inside || count < 4294967295U)) {
    report.good("user namespace",
                fmt::format("user {} here is user {} outside; ranks of one host need one user "
                            "outside as well",
                            inside, outside));
  } else {
    report.good("user namespace", "the host's");
  }
}

}  // namespace tutti
