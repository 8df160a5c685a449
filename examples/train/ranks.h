// The ranks of the job, as the axes that the mix needs. This is the only place
// that knows what carries them.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "options.h"
#include "parallel/axis.h"
#include "parallel/mesh.h"

namespace train {

class Ranks {
 public:
  /// Collective over `world`, which outlives it.
  Ranks(tutti::Communicator& world, const Options& options);

  using Axis = tutti::parallel::Axis;
  Axis& shard() { return mesh_.axis("shard"); }          // dp ranks with shards of one model
  Axis& replicate() { return mesh_.axis("replicate"); }  // dp ranks with the same shards
  Axis& data() { return mesh_.axis({"replicate", "shard"}); }
  Axis& tensor() { return mesh_.axis("tp"); }
  Axis& pipeline() { return mesh_.axis("pp"); }

  /// Dimensions that cut the model itself.
  std::vector<Axis*> of_model() { return {&tensor(), &pipeline()}; }

  int data_rank() const;
  int pipeline_rank() const { return mesh_.coordinate("pp"); }

  /// What the axes of engines have waited, and carried, since the last call.
  struct Cost {
    std::chrono::nanoseconds waited{0};
    std::uint64_t sent = 0;
  };
  Cost cost();

 private:
  tutti::parallel::Mesh mesh_;
};

}  // namespace train
