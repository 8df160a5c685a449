// Doubts: records that cannot be true, or that the rest of the machine contradicts. Each is named
// once, with what is taken instead, so that no single record decides what a plan gets. The rules
// ask other records first (the other end of a link, devices of the same kind), then the model
// (constants.h).
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "topology/constants.h"
#include "topology/records.h"

namespace tutti::topology {

/// Repairs `records`; says what it did. In a file that nobody should doubt (TUTTI_TOPO_TRUST), it
/// is not called.
std::vector<Doubt> check(Records& records);

// --- For the parts of it: check_*.cpp ------------------------------------------------------------

/// Collects doubts; those that say the same of several records become one.
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

/// How people call a device: gpu3, mlx5_0, or its address.
std::string name_of(const DeviceRecord& device);
/// "0x10de" as a number; 0 where it is none.
std::uint16_t id_of(const std::string& text);
const GpuModel& model_of(const DeviceRecord& gpu);
int host_of(const Records& records, const DeviceRecord& device);
/// The value that more than half of at least two have; nothing where there is none.
template <typename T>
Maybe<T> common(const std::vector<T>& values) {
  std::map<T, std::size_t> count;
  for (const T& v : values) ++count[v];
  for (const auto& [value, n] : count) {
    if (n >= 2 && 2 * n > values.size()) return value;
  }
  return {};
}

void check_structure(Records& records, Doubts& doubts);
void check_pci(Records& records, Doubts& doubts);
void check_gpu_links(Records& records, Doubts& doubts);
void check_ports(Records& records, Doubts& doubts);

}  // namespace tutti::topology
