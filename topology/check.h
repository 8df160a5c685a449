// Doubts: records that cannot be true, or that the rest of the machine contradicts. The check names
// each once, with its repair, so that no single record decides the speed of a plan. Rules ask other
// records first (a link's other end, devices of the same kind), then the model (constants.h).
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "topology/constants.h"
#include "topology/records.h"

namespace tutti::topology {

/// Repairs `records` and returns the repairs. With TUTTI_TOPO_TRUST, it is not called.
std::vector<Doubt> check(Records& records);

// --- For the parts of it: check_*.cpp ------------------------------------------------------------

/// Collects doubts; equal doubts about several records become one.
class Doubts {
 public:
  void add(const std::string& record, const Origin& origin, const std::string& what);
  std::vector<Doubt> take();

 private:
  struct Group {
    std::string what;
    Origin first;
    std::vector<std::string> records;
    std::set<std::string> known;
  };
  std::vector<Group> groups_;
  std::map<std::string, std::size_t> place_;  // in groups_, by what
};

/// A device's name for people: gpu3, mlx5_0, or its address.
std::string name_of(const DeviceRecord& device);
/// "0x10de" as a number; 0 for any other text.
std::uint16_t id_of(const std::string& text);
const GpuModel& model_of(const DeviceRecord& gpu);
int host_of(const Records& records, const DeviceRecord& device);
/// The value of more than half of the records, of at least two; nothing if there is none.
template <typename T>
Maybe<T> common(const std::vector<T>& values) {
  std::map<T, std::size_t> count;
  for (const T& v : values) ++count[v];
  for (const auto& [value, n] : count) {
    if (n >= 2 && 2 * n > values.size()) return value;
  }
  return {};
}

/// Returns devices of processors that were there twice, which are named by now.
std::set<int> check_processors(Records& records, Doubts& doubts);
void check_structure(Records& records, Doubts& doubts);
void check_pci(Records& records, Doubts& doubts);
void check_gpu_links(Records& records, Doubts& doubts);
void check_ports(Records& records, Doubts& doubts);

}  // namespace tutti::topology
