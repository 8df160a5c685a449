#include "core/host.h"

#include <fmt/format.h>
#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string_view>
#include <thread>

#include "core/cpu_mask.h"
#include "core/number.h"

namespace tutti {
namespace {

std::size_t cache_bytes(hwloc_topology_t topology, hwloc_obj_type_t level, std::size_t otherwise) {
  const hwloc_obj_t cache = hwloc_get_obj_by_type(topology, level, 0);
  return cache != nullptr && cache->attr->cache.size > 0 ? cache->attr->cache.size : otherwise;
}

std::vector<CoreSet> domains_of(hwloc_topology_t topology, hwloc_obj_type_t kind) {
  std::vector<CoreSet> domains;
  hwloc_obj_t object = nullptr;
  while ((object = hwloc_get_next_obj_by_type(topology, kind, object)) != nullptr) {
    // With those that this process may not use, so that all processes see the same domain.
    CoreSet& cores = domains.emplace_back();
    for (std::size_t c = 0; c < cores.size(); ++c) {
      cores[c] = hwloc_bitmap_isset(object->complete_cpuset, static_cast<unsigned>(c)) != 0;
    }
  }
  return domains;
}

CoreSet listed_cores(const std::string& list) {
  CoreSet cores;
  for (const int core : members_of_list(list)) {
    if (static_cast<std::size_t>(core) < cores.size()) cores.set(static_cast<std::size_t>(core));
  }
  return cores;
}

/// The kernel's folder about the L3 cache of core `core`; "" if there is none.
std::string l3_folder(std::size_t core) {
  constexpr int kMostCaches = 10;
  for (int i = kMostCaches; i-- > 0;) {
    std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}/cache/index{}", core, i);
    if (first_line(folder + "/level") == "3") return folder;
  }
  return "";
}

/// The cores of the last-level cache of core `core`, or, if there is none, of its NUMA node.
CoreSet domain_with(std::size_t core) {
  const std::string cache = l3_folder(core);
  if (!cache.empty()) return listed_cores(first_line(cache + "/shared_cpu_list"));
  const std::string nodes = "/sys/devices/system/node/";
  const CoreSet numbers = listed_cores(first_line(nodes + "has_cpu"));
  for (std::size_t n = numbers._Find_first(); n < numbers.size(); n = numbers._Find_next(n)) {
    const CoreSet cores = listed_cores(first_line(fmt::format("{}node{}/cpulist", nodes, n)));
    if (cores[core]) return cores;
  }
  return {};
}

/// Whether hwloc is asked to see another machine, as tests do.
bool sees_another_machine() {
  constexpr const char* kVariables[] = {"HWLOC_SYNTHETIC", "HWLOC_XMLFILE", "HWLOC_FSROOT"};
  return std::ranges::any_of(kVariables, [](const char* v) { return getenv(v) != nullptr; });
}

/// Where the system forbids to ask for cores, as a filter of system calls may, hwloc asks for ever.
bool hwloc_may_look() {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 || errno == EINVAL;  // it is too small
}

Host look() {
  const int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  Host h{"unknown processor", threads, std::size_t{1} << 20, std::size_t{32} << 20, {}};
  hwloc_topology_t topology = nullptr;
  if (!hwloc_may_look()) return h;
  if (hwloc_topology_init(&topology) != 0) return h;
  if (hwloc_topology_load(topology) == 0) {
    const hwloc_obj_t package = hwloc_get_obj_by_type(topology, HWLOC_OBJ_PACKAGE, 0);
    const char* model =
        package == nullptr ? nullptr : hwloc_obj_get_info_by_name(package, "CPUModel");
    if (model != nullptr) h.cpu = model;
    const int cores = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    if (cores > 0) h.cores = cores;
    h.l2_bytes = cache_bytes(topology, HWLOC_OBJ_L2CACHE, h.l2_bytes);
    h.l3_bytes = cache_bytes(topology, HWLOC_OBJ_L3CACHE, h.l3_bytes);
    h.domains = domains_of(topology, HWLOC_OBJ_L3CACHE);
    if (h.domains.empty()) h.domains = domains_of(topology, HWLOC_OBJ_NUMANODE);
  }
  hwloc_topology_destroy(topology);
  return h;
}

}  // namespace

std::string first_line(const std::string& file) {
  std::string line;
  std::getline(std::ifstream(file), line);
  return line;
}

const Host& host() {
  static const auto& h = *new Host(look());  // never destroyed: threads may ask during exit
  return h;
}

std::size_t l3_bytes() {
  static const std::size_t bytes = [] {
    const std::string cache = sees_another_machine() ? "" : l3_folder(0);
    const std::string text = cache.empty() ? "" : first_line(cache + "/size");  // as in 32768K
    const auto kib =
        text.ends_with('K')
            ? parse_number<std::size_t>(std::string_view(text).substr(0, text.size() - 1))
            : std::nullopt;
    return kib && *kib > 0 ? *kib << 10 : host().l3_bytes;
  }();
  return bytes;
}

CoreSet allowed_cores() {
  CoreSet cores;
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores.set(0);
  for (std::size_t i = 0; i < cores.size(); ++i) cores[i] = CPU_ISSET(i, &set);
  return cores;
}

int domain_of(const CoreSet& cores) {
  const std::size_t first = cores._Find_first();
  if (first == cores.size()) return -1;
  CoreSet domain;
  if (sees_another_machine()) {
    const auto found =
        std::ranges::find_if(host().domains, [&](const auto& d) { return d[first]; });
    if (found != host().domains.end()) domain = *found;
  } else {
    domain = domain_with(first);
  }
  return domain.any() && (cores & ~domain).none() ? static_cast<int>(domain._Find_first()) : -1;
}

}  // namespace tutti
