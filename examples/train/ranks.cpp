#include "examples/train/ranks.h"

namespace train {

using tutti::parallel::Axis;

// Tensor-parallel ranks talk most, so they are neighbours; pipeline ranks
// least.
Ranks::Ranks(tutti::Communicator& world, const Options& o)
    : mesh_(world,
            {{"pp", o.pp}, {"replicate", o.replicas}, {"shard", o.dp / o.replicas}, {"tp", o.tp}},
            {{"replicate", "shard"}}) {}

int Ranks::data_rank() const {
  return mesh_.coordinate("replicate") * mesh_.size("shard") + mesh_.coordinate("shard");
}

Ranks::Cost Ranks::cost() {
  Cost cost;
  for (Axis* axis : {&shard(), &replicate(), &data(), &tensor(), &pipeline()}) {
    cost.waited += axis->traffic().waited;
    cost.sent += axis->traffic().total().sent;
    axis->reset_traffic();
  }
  return cost;
}

}  // namespace train
