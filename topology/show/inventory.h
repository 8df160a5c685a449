// What a source of topology names, counted: for people, and to compare readers.
#pragma once

#include <cstdint>
#include <string>

#include "topology/records.h"

namespace tutti::topology {

/// How many things of each kind the source names, before any repair: repeated ones count twice.
struct Inventory {
  int version = 0;
  std::int64_t elements = 0;
  int hosts = 0, cpus = 0, pci = 0, gpu_elements = 0, gpus_by_class_only = 0, nic_elements = 0,
      nic_pci_by_class = 0, nets = 0;
  std::string net_speeds;  // "1000x1 10000x60"; "-" for ports without a speed
  std::int64_t nvlink_elements = 0, nvlink_links = 0, nvswitch_targets = 0, xgmi_elements = 0,
               xgmi_links = 0, c2c_elements = 0;
};
Inventory inventory_of(const Records& records);

}  // namespace tutti::topology
