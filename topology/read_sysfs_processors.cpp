// The processors that Linux shows.
#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "core/cpu_mask.h"
#include "core/number.h"
#include "topology/readers.h"
#include "topology/source.h"

namespace tutti::topology {
namespace {

constexpr const char* kNodes = "/sys/devices/system/node/";
constexpr const char* kCpus = "/sys/devices/system/cpu/";

class ProcessorReader {
 public:
  ProcessorReader(const SysfsTree& tree, Records& records) : tree_(tree), records_(records) {}

  void run() {
    const std::string online = tree_.line(std::string(kNodes) + "online");
    const auto up = members_of_list(online);
    for (const std::string& name : tree_.names(kNodes)) {
      const auto number = name.starts_with("node")
                              ? parse_number<std::int64_t>(std::string_view(name).substr(4))
                              : std::nullopt;
      if (!number || *number < 0 || *number > 1 << 20) continue;
      const int numa = static_cast<int>(*number);
      if (!up.empty() && !up.contains(numa)) continue;
      const std::string folder = kNodes + name + "/";
      auto cores = members_of_mask(tree_.line(folder + "cpumap"));
      if (cores.empty()) cores = members_of_list(tree_.line(folder + "cpulist"));
      if (cores.empty()) {
        ++domains_without_cores_;
        continue;
      }
      add_processor(numa, cores, folder);
    }
    if (records_.cpus.empty()) {
      // No NUMA in this kernel, or none shown.
      std::set<int> cores = members_of_list(tree_.line(std::string(kCpus) + "online"));
      add_processor(0, cores, kCpus);
    }
    if (domains_without_cores_ > 0) {
      records_.unseen.push_back(
          fmt::format("{} NUMA domain(s) of memory alone are left out", domains_without_cores_));
    }
    std::set<std::string> caches;
    for (const CpuRecord& cpu : records_.cpus) {
      for (const int core : members_of_mask(cpu.affinity)) {
        const std::string shared =
            tree_.line(fmt::format("{}cpu{}/cache/index3/shared_cpu_map", kCpus, core));
        if (!shared.empty()) caches.insert(shared);
      }
    }
    records_.caches = static_cast<int>(caches.size());
  }

 private:
  void add_processor(int numa, const std::set<int>& cores, const std::string& folder) {
    CpuRecord cpu;
    cpu.numa = numa;
    cpu.affinity = mask_of(cores);
    cpu.cores = static_cast<int>(cores.size());
    cpu.origin = {tree_.root() + folder, 0};
    if (!cores.empty()) {
      cpu.package = static_cast<int>(
          tree_.integer(fmt::format("{}cpu{}/topology/physical_package_id", kCpus, *cores.begin()))
              .value_or(-1));
    }
    const std::string info = tree_.all("/proc/cpuinfo");
    cpu.vendor = value_of(info, "vendor_id");
    const auto family = parse_number<std::int64_t>(value_of(info, "cpu family"));
    const auto model = parse_number<std::int64_t>(value_of(info, "model"));
    if (family) cpu.family = static_cast<int>(*family & 0xffff);
    if (model) cpu.model = static_cast<int>(*model & 0xffff);
    cpu.arch = architecture(info);
    records_.cpus.push_back(cpu);
  }

  /// The value of "key : value" in /proc/cpuinfo.
  static std::string value_of(const std::string& info, std::string_view key) {
    for (std::size_t line = 0; line < info.size();) {
      const std::size_t end = std::min(info.find('\n', line), info.size());
      const std::string_view text = std::string_view(info).substr(line, end - line);
      const std::size_t colon = text.find(':');
      if (colon != std::string_view::npos && trimmed(text.substr(0, colon)) == key) {
        return std::string(trimmed(text.substr(colon + 1)));
      }
      line = end + 1;
    }
    return "";
  }

  std::string architecture(const std::string& info) const {
    if (tree_.root().empty()) {
      utsname system{};
      uname(&system);
      const std::string machine = system.machine;
      return machine == "aarch64" ? "arm64" : machine == "ppc64le" ? "ppc64" : machine;
    }
    if (!value_of(info, "CPU implementer").empty()) return "arm64";
    if (value_of(info, "cpu").starts_with("POWER")) return "ppc64";
    return value_of(info, "vendor_id").empty() ? "" : "x86_64";
  }

  const SysfsTree& tree_;
  Records& records_;
  int domains_without_cores_ = 0;
};

}  // namespace

void read_sysfs_processors(const SysfsTree& tree, Records& records) {
  ProcessorReader(tree, records).run();
}

}  // namespace tutti::topology
