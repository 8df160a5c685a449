// The meaning of the cells of `nvidia-smi topo -m`, and the repair if two of them do not agree: a
// pair of devices has two, and the nearness of two pairs of three limits that of the third.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "topology/records.h"

namespace tutti::topology {

/// How near two devices are, by what they share: 0 a switch, 1 switches, 2 a host bridge, 3 a NUMA
/// domain, 4 nothing; -1 if the word does not say (NVLink).
int smi_level(std::string_view cell);
/// The NVLinks of a cell; 0 if it has none.
int smi_links(std::string_view cell);

struct SmiMatrix {
  std::vector<std::string> columns;  // devices
  std::vector<std::vector<std::string>> cells;
  std::vector<std::vector<int>> near;  // levels, the same both ways
  std::vector<std::set<int>> cores;
  std::vector<int> numa;  // -1: not said
  std::vector<Origin> origins;
};

/// Fills missing rows from their columns, and makes `near`.
std::vector<Doubt> agree(SmiMatrix& matrix);

}  // namespace tutti::topology
