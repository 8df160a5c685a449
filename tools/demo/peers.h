// The same all_reduce by other libraries that this machine's Python has: Gloo in PyTorch, and an
// MPI through mpi4py.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/demo/measure.h"

namespace tutti {

struct DemoPeer {
  std::string name;                // with its version, where it is there
  std::optional<DemoTimes> times;  // or none:
  std::string why_not;             // a few words
};

/// By `ranks` ranks of `python`, a program with or without a path. Takes a minute at most.
std::vector<DemoPeer> measure_peers(const std::string& python, int ranks);

}  // namespace tutti
