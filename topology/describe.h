// A machine from a description: "8xH100", "2xRTX4090", "2xA100-PCIe nvlink". It becomes NCCL's
// system XML, so every reader of topology files reads it, and people can change it.
#pragma once

#include <string>
#include <string_view>

#include "topology/constants.h"

namespace tutti::topology {

/// The GPU of a name that people and drivers use: "H100", "A100-SXM4-40GB", "NVIDIA GeForce RTX
/// 4090", "Tesla V100-SXM2-32GB"; null if the table does not have it.
const GpuModel* find_gpu_model(std::string_view name);

/// Whether GPUs of a model, where a host has several, are sold with links between them: modules,
/// and not cards.
bool comes_linked(const GpuModel& model);

/// XML of one host with `count` GPUs of a model, on two processors, with a bridge and a port of
/// `port_rate` Gbit/s (0: none) for each `count / ports` of them. `bridged`: GPUs for PCI slots
/// have their NVLink bridge, which joins pairs.
std::string machine_xml(const GpuModel& model, int count, int ports, double port_rate,
                        bool bridged);

struct Described {
  const GpuModel* model = nullptr;
  int count = 0;
  bool bridged = false;
};
/// Throws Error(invalid_argument), which lists the possible words.
Described parse_machine(std::string_view text);

}  // namespace tutti::topology
