// See discover.h.
#include "topology/discover.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "core/error.h"
#include "core/host.h"
#include "core/log.h"
#include "core/number.h"
#include "core/settings.h"
#include "topology/check.h"
#include "topology/readers.h"
#include "topology/source.h"

namespace tutti::topology {

Records discover_records() {
  Records records = read_sysfs("");
  records.source = "this machine";
  records.format = "live: /sys";
  // Where a sandbox hides /sys, hwloc still knows cores and caches (by CPUID).
  const Host& h = host();
  if (records.caches == 0) records.caches = static_cast<int>(h.domains.size());
  if (records.cpus.size() == 1 && records.cpus.front().cores == 0) {
    records.cpus.front().cores = h.cores;
  }
  add_nvml(records);
  return records;
}

Records records_of(const std::string& text, const std::string& name) {
  if (trimmed(text).empty()) {
    throw Error(ErrorCode::invalid_argument, fmt::format("{} is empty", name));
  }
  if (text.find('<') == std::string::npos || looks_like_smi(text)) {
    if (looks_like_smi(text)) return read_smi(text, name);
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}:1: expected XML of NCCL, RCCL or hwloc, or the matrix of "
                            "`nvidia-smi topo -m`",
                            name));
  }
  const XmlSource xml(text, name);
  if (xml.document().child("topology")) return read_hwloc(xml);
  if (xml.document().child("graphs")) {
    xml.refuse(xml.document().child("graphs"),
               "this is what NCCL chose (a graph file), not a machine; expected <system>");
  }
  return read_nccl_system(xml);
}

Records read_records(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) return read_sysfs(path);
  return records_of(read_file(path), printable(path, 255));
}

/// What a reader ignored of a record, and the repair of that record, are one doubt.
static void join_repairs(std::vector<Doubt>& read, std::vector<Doubt>& repairs) {
  constexpr std::string_view kIgnored = "; it is ignored";
  for (Doubt& d : read) {
    const std::string place = d.what.substr(0, d.what.find(": ") + 2);  // "file:46: "
    const auto is_there = [&](const Doubt& r) { return r.what.starts_with(place); };
    const auto repair = std::ranges::find_if(repairs, is_there);
    const bool one = std::ranges::count_if(repairs, is_there) == 1;  // a line may have many records
    if (!one || !d.what.ends_with(kIgnored)) continue;
    d.what.replace(d.what.size() - kIgnored.size(), kIgnored.size(),
                   ": " + repair->what.substr(place.size()));
    repairs.erase(repair);
  }
}

Graph graph_of(Records& records) {
  std::vector<Doubt> doubts;
  if (!setting_boolean("TUTTI_TOPO_TRUST")) doubts = check(records);
  join_repairs(records.doubts, doubts);
  Graph graph = build(records);
  graph.doubts.insert(graph.doubts.end(), doubts.begin(), doubts.end());
  return graph;
}

const Graph& this_machine() {
  static const auto& graph = [&]() -> const Graph& {
    Records records = discover_records();
    const auto* const g = new Graph(graph_of(records));  // never destroyed
    for (const Doubt& d : g->doubts) log().warn("topology: {}", d.what);
    return *g;
  }();
  return graph;
}

}  // namespace tutti::topology
