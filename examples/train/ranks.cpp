#include "examples/train/ranks.h"

namespace train {

using tutti::parallel::Axis;

// Tensor-parallel ranks talk most, so they are neighbours; pipeline ranks
// least.
Ranks::Ranks(tutti::Communicator& world, const Options& o)
    : world_(world),
      mesh_(world,
            {{"pp", o.pp}, {"replicate", o.replicas}, {"shard", o.dp / o.replicas}, {"tp", o.tp}},
            {{"replicate", "shard"}}) {
  if (o.nccl.empty()) return;
  using tutti::bench::NcclAxis;
  nccl_.emplace(o.nccl, tutti::bench::nccl_axis_collectives());
  for (const Names& names :
       {Names{"shard"}, {"replicate"}, {"replicate", "shard"}, {"tp"}, {"pp"}}) {
    over_nccl_[names] = std::make_unique<NcclAxis>(
        *nccl_, mesh_.axis(names),
        names.front() == "pp" ? NcclAxis::Messages::between_neighbours : NcclAxis::Messages::none);
  }
}

Axis& Ranks::axis(const Names& names) {
  const auto found = over_nccl_.find(names);
  return found != over_nccl_.end() ? *found->second : mesh_.axis(names);
}

Axis* Ranks::ends(int first, int last) {
  ends_.emplace(mesh_.axis("pp"), first, last);
  return ends_->axis();
}

void Ranks::abort(const std::string& why) {
  mesh_.abort(why);
  if (ends_ && ends_->axis() != nullptr) ends_->axis()->abort(why);
  world_.abort(why);
}

void Ranks::trace(const std::shared_ptr<tutti::parallel::Trace>& trace) {
  const auto add = [&](Axis* axis, const char* name) {
    if (axis != nullptr && axis->size() > 1) axis->trace(trace, name);
  };
  add(&data(), "dp");
  add(&shard(), "shards");
  add(&replicate(), "replicas");
  add(&tensor(), "tp");
  add(&pipeline(), "pp");
  add(ends_ ? ends_->axis() : nullptr, "tied");
}

int Ranks::data_rank() const {
  return mesh_.coordinate("replicate") * mesh_.size("shard") + mesh_.coordinate("shard");
}

Ranks::Cost Ranks::cost() {
  Cost cost;
  Axis* const ends = ends_ ? ends_->axis() : nullptr;
  for (Axis* axis : {&shard(), &replicate(), &data(), &tensor(), &pipeline(), ends}) {
    if (axis == nullptr) continue;
    cost.waited += axis->traffic().waited;
    cost.sent += axis->traffic().total().sent;
    axis->reset_traffic();
  }
  return cost;
}

}  // namespace train
