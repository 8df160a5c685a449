// What the cells of `nvidia-smi topo -m` mean, and what is taken where two of them do not agree:
// each pair of devices has two cells, and nearness of three devices is bound to each other.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "topology/records.h"

namespace tutti::topology {

/// How near: what devices that are so near must share. 0 a switch, 1 switches, 2 a host bridge, 3 a
/// NUMA domain, 4 nothing; -1 where the word does not say (NVLink).
int smi_level(std::string_view cell);
/// NVLinks that a cell says; 0 where it says none.
int smi_links(std::string_view cell);

struct SmiMatrix {
  std::vector<std::string> columns;  // devices
  std::vector<std::vector<std::string>> cells;
  std::vector<std::vector<int>> near;  // levels, the same both ways
  std::vector<std::set<int>> cores;
  std::vector<int> numa;  // -1: not said
  std::vector<Origin> origins;
};

/// Rows that are missing are filled in from their columns, and `near` is made.
std::vector<Doubt> agree(SmiMatrix& matrix);

}  // namespace tutti::topology
