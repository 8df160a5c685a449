// What a rank carries in a step, on each axis: the calls that the engines make, and their bytes, as
// Axis::traffic() counts them. (The first steps carry more: the engines agree on orders there.)
#pragma once

#include "../axis.h"
#include "mix.h"

namespace tutti::parallel::estimate {

struct StepTraffic {
  Traffic data;          // the axis of shards; without shards, of all replicas
  Traffic replicas;      // of the same shards
  Traffic context;       // the ranks that share a sequence, in a ring
  Traffic heads;         // and those of them that exchange rows for heads
  Traffic experts;       // the ranks that divide the experts: of balanced layers
  Traffic balance;       // all data-parallel ranks: how busy experts are
  Traffic same_experts;  // as `data`, of the ranks that have the same experts
  Traffic tensor;
  Traffic pipeline;
  Traffic ends;  // the first and the last stage, of tied parameters

  Traffic::Count total() const;
};

/// Of a rank of this stage with shard number `shard`. The shard matters because sequence
/// parallelism sums the norms' gradients, and shards have more or fewer of them.
StepTraffic traffic(const Mix& mix, const Model& model, int stage, int shard = 0);

}  // namespace tutti::parallel::estimate
