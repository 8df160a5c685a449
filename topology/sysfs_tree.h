// A tree of small files below some root: /sys of this machine, or a copy of another one's. The
// reader never follows links out of the tree, and cuts files at a size. A missing file is empty.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topology/bus_id.h"

namespace tutti::topology {

class SysfsTree {
 public:
  explicit SysfsTree(std::string root) : root_(std::move(root)) {}

  const std::string& root() const { return root_; }
  /// The first line of a file, without blanks around it; "" if there is none.
  std::string line(const std::string& path) const;
  std::string all(const std::string& path) const;
  std::optional<std::int64_t> integer(const std::string& path) const;  // decimal or 0x...
  /// Names in a folder, sorted as people count: node2 before node10.
  std::vector<std::string> names(const std::string& path) const;
  bool exists(const std::string& path) const;
  /// The host bridge ("pci0000:80"), then the PCI devices that a link's target goes through.
  struct PciPath {
    std::string host_bridge;
    std::vector<BusId> devices;
  };
  PciPath pci_path(const std::string& link) const;

 private:
  std::string root_;
};

}  // namespace tutti::topology
