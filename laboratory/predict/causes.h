// Why a machine is slower than it should be. A cause is a change of the machine: with a port less,
// with PCI instead of NVLink. The changed machine is predicted like the sound one, and how many
// times slower it is by size is compared with how many times slower the measured one is.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "laboratory/predict/nccl_model.h"
#include "laboratory/predict/verdict.h"
#include "topology/graph.h"
#include "topology/network.h"

namespace tutti {

/// All that a prediction depends on.
struct PredictedMachine {
  topology::Graph host;
  int hosts = 1, gpus = 0;  // gpus: of each host, that are used; 0: all
  topology::Network network;
  GpuConstants constants;
  NcclCall call;  // its size does not count
};

struct Cause {
  std::string id;       // for programs: "one_port"
  std::string what;     // "1 of 8 ports carries everything"
  std::string look_at;  // where to find out
  double off = 1;       // its times are so many times off the measured ones, in the mean
  bool said = false;    // the log itself says so
};

/// By a cause's id: whether something else than times says that it is so, or that it is not. Of
/// causes without an entry nothing is said.
using SaidCauses = std::map<std::string, bool, std::less<>>;

/// Those that `said` has, and those that bring the times nearer to the measured ones, the best
/// first; at most `most`. What `said` denies is none. Takes a second or two.
std::vector<Cause> likely_causes(const PredictedMachine& machine, const SpeedVerdict& verdict,
                                 const SaidCauses& said = {}, std::size_t most = 3);

}  // namespace tutti
