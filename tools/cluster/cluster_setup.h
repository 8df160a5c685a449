// A cluster, from options, or from a log where options are missing; and the constants of
// predictions for it: for `tutti estimate` and `tutti predict`.
#pragma once

#include <string>
#include <vector>

#include "collectives/model/gpu_constants.h"
#include "tools/cluster/nccl_log.h"
#include "topology/graph.h"
#include "topology/network.h"

namespace tutti {

/// What the command line says.
struct ClusterArguments {
  std::string topology, machine, network;
  std::vector<std::string> constants;
  int hosts = 0, gpus = 0;
};

struct ClusterSetup {
  topology::Graph host;
  topology::Network network;
  std::string said;                  // of the machine and the network
  std::vector<std::string> guessed;  // of that, what nobody said
  int hosts = 1, gpus = 0;
};

/// Throws Error(invalid_argument), which names the missing or wrong option.
ClusterSetup set_up(const ClusterArguments& a, const NcclLog* log);
GpuConstants constants_of(const ClusterArguments& a);
void print_constants(const ClusterArguments& a);

}  // namespace tutti
