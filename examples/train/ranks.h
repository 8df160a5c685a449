// The ranks of the job, as the axes that the mix needs. This is the only place
// that knows what carries them.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/nccl/axis.h"
#include "options.h"
#include "parallel/axis.h"
#include "parallel/hybrid/shared_gradients.h"
#include "parallel/mesh.h"

namespace train {

class Ranks {
 public:
  /// Collective over `world`, which outlives it.
  Ranks(tutti::Communicator& world, const Options& options);

  using Axis = tutti::parallel::Axis;
  Axis& shard() { return axis({"shard"}); }          // dp ranks with shards of one model
  Axis& replicate() { return axis({"replicate"}); }  // dp ranks with the same shards
  Axis& data() { return axis({"replicate", "shard"}); }
  Axis& tensor() { return axis({"tp"}); }
  Axis& pipeline() { return axis({"pp"}); }

  /// Collective over pipeline(): its ranks `first` and `last`, which have tied
  /// parameters; null on others, and where they are one.
  Axis* ends(int first, int last);

  /// Dimensions that cut the model itself.
  std::vector<Axis*> of_model() { return {&tensor(), &pipeline()}; }

  /// All ranks, for what is no engine's: not counted, and never over NCCL.
  Axis& world() { return world_; }

  /// This rank gives up, for this reason: no other rank waits for it any more.
  void abort(const std::string& why);

  /// From now on all axes write down what they do.
  void trace(const std::shared_ptr<tutti::parallel::Trace>& trace);

  int data_rank() const;
  int pipeline_rank() const { return mesh_.coordinate("pp"); }

  /// What the axes of engines have waited, and carried, since the last call.
  struct Cost {
    std::chrono::nanoseconds waited{0};
    std::uint64_t sent = 0;
  };
  Cost cost();

 private:
  using Names = tutti::parallel::Mesh::Names;
  Axis& axis(const Names& names);

  tutti::parallel::CommunicatorAxis world_;
  tutti::parallel::Mesh mesh_;
  std::optional<tutti::parallel::PipelineEnds> ends_;
  // With --nccl: these instead of the mesh's axes.
  std::optional<tutti::bench::NcclFunctions> nccl_;
  std::map<Names, std::unique_ptr<Axis>> over_nccl_;
};

}  // namespace train
