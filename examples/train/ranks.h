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
  Axis& shard() { return axis(shard_); }             // dp ranks with shards of one model
  Axis& replicate() { return axis({"replicate"}); }  // dp ranks with the same shards
  Axis& data() { return axis(data_); }
  // Of the dp ranks:
  Axis* ring() { return optional("ring"); }    // those that share each sequence, by blocks of keys;
  Axis* heads() { return optional("heads"); }  // by heads; null: none
  /// Those that divide experts. Where each has all, it is the one tp rank, as experts need.
  Axis& experts() { return mesh_.shape().has("ep") ? axis({"ep"}) : tensor(); }
  Axis& experts_shard() { return axis(experts_shard_); }  // shard(), with the same experts
  Axis& same_experts() { return axis(experts_data_); }    // data(), with the same experts
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

  int data_rank() const;       // among those with other sequences
  int positions_rank() const;  // among those with other tokens
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
  Axis* optional(const char* name);
  std::vector<Axis*> all();
  int number(const Names& names) const;

  tutti::parallel::CommunicatorAxis world_;
  // Dimensions of the mesh. Those of --cp and --ep are there if they have several ranks.
  const Names shard_, data_, experts_shard_, experts_data_;
  tutti::parallel::Mesh mesh_;
  std::optional<tutti::parallel::PipelineEnds> ends_;
  // With --nccl: these instead of the mesh's axes.
  std::optional<tutti::bench::NcclFunctions> nccl_;
  std::map<Names, std::unique_ptr<Axis>> over_nccl_;
};

}  // namespace train
