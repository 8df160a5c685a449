// `tutti predict`: the cluster, from options, or from a log where options are missing; and the
// constants of the prediction.
#pragma once

#include <string>
#include <vector>

#include "collectives/model/gpu_constants.h"
#include "tools/predict/nccl_log.h"
#include "topology/graph.h"
#include "topology/network.h"

namespace tutti {

/// What the command line says.
struct PredictArguments {
  std::string collective, topology, machine, network, min = "8", max = "16G", log, algorithm;
  std::string picture, heat;
  std::vector<std::string> constants;
  int hosts = 0, gpus = 0, factor = 2, gpus_of_thread = 0;
  bool list = false, csv = false, ours = false, copy_engines = false;
};

struct PredictSetup {
  topology::Graph host;
  topology::Network network;
  std::string said;                  // of the machine and the network
  std::vector<std::string> guessed;  // of that, what nobody said
  int hosts = 1, gpus = 0;
};

/// Throws Error(invalid_argument), which names the missing or wrong option.
PredictSetup set_up(const PredictArguments& a, const NcclLog* log);
GpuConstants constants_of(const PredictArguments& a);
void print_constants(const PredictArguments& a);

}  // namespace tutti
