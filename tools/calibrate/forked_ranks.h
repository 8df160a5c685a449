// Ranks in processes of their own, forked from this one, that measure something together.
#pragma once

#include <sched.h>

#include <functional>
#include <string>
#include <vector>

#include "collectives/model/machine.h"
#include "comm/communicator.h"

namespace tutti {

struct ForkedRanks {
  int count = 1;
  std::vector<cpu_set_t> cores;  // rank r runs on cores[r % cores.size()]; empty: anywhere
  std::string algorithm;         // for Options; "": whichever is chosen
};

/// Runs `body` on each rank, with the settings' defaults, whatever the environment says, and
/// without warnings. Keeps rank 0's changes to `machine`. Call it while this process has one
/// thread. Throws Error with the failure of a rank.
void run_forked(const ForkedRanks& ranks, Machine& machine,
                const std::function<void(Communicator&, Machine&)>& body);

}  // namespace tutti
