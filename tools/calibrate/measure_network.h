// Measures the constants of collectives/model/machine.h that are about the network: between rank 0
// and the first rank on another host, and between as many pairs of these two hosts as there are.
#pragma once

#include "collectives/model/machine.h"
#include "comm/communicator.h"

namespace tutti {

struct NetworkRates {  // bytes per ns, in one direction
  double one = 0;      // a pair of ranks
  double all = 0;      // all pairs of the two hosts at once
  int pairs = 0;       // 0: all ranks are on one host
};

/// All ranks of `comm` call it; rank 0's `m`, which has the constants of its host, gets those of
/// the network, if there is one. The rates are rank 0's, too.
NetworkRates measure_network(Communicator& comm, Machine& m);

}  // namespace tutti
