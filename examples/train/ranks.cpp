#include "examples/train/ranks.h"

#include <algorithm>

namespace train {

using tutti::parallel::Axis;

namespace {

using Names = tutti::parallel::Mesh::Names;

/// `names`, and those of the dimensions that a mix may lack.
Names dimensions(Names names, const Options& o, bool with_experts) {
  const int of_ring = o.cp / o.cp_heads;
  if (with_experts && o.ep > 1) names.push_back("ep");
  if (of_ring > 1) names.push_back("ring");
  if (o.cp_heads > 1) names.push_back("heads");
  return names;
}

std::vector<tutti::parallel::MeshDimension> mesh_of(const Options& o) {
  std::vector<tutti::parallel::MeshDimension> result{
      {"pp", o.pp}, {"replicate", o.replicas}, {"shard", o.dp / o.replicas / o.ep / o.cp}};
  if (o.ep > 1) result.push_back({"ep", o.ep});
  if (o.cp > o.cp_heads) result.push_back({"ring", o.cp / o.cp_heads});
  if (o.cp_heads > 1) result.push_back({"heads", o.cp_heads});
  result.push_back({"tp", o.tp});
  return result;
}

/// Axes of several dimensions, each once.
std::vector<Names> fused(const std::vector<Names>& wanted) {
  std::vector<Names> result;
  for (const Names& names : wanted) {
    if (names.size() > 1 && std::ranges::find(result, names) == result.end()) {
      result.push_back(names);
    }
  }
  return result;
}

}  // namespace

// Tensor-parallel ranks talk most, so they are neighbours; pipeline ranks
// least.
Ranks::Ranks(tutti::Communicator& world, const Options& o)
    : world_(world),
      shard_(dimensions({"shard"}, o, true)),
      data_(dimensions({"replicate", "shard"}, o, true)),
      experts_shard_(dimensions({"shard"}, o, false)),
      experts_data_(dimensions({"replicate", "shard"}, o, false)),
      mesh_(world, mesh_of(o), fused({shard_, data_, experts_shard_, experts_data_})) {
  if (o.nccl.empty()) return;
  using tutti::bench::NcclAxis;
  nccl_.emplace(o.nccl, tutti::bench::nccl_axis_collectives());
  for (const Names& names : {shard_, {"replicate"}, data_, {"tp"}, {"pp"}}) {
    over_nccl_[names] = std::make_unique<NcclAxis>(
        *nccl_, mesh_.axis(names),
        names.front() == "pp" ? NcclAxis::Messages::between_neighbours : NcclAxis::Messages::none);
  }
}

Axis& Ranks::axis(const Names& names) {
  const auto found = over_nccl_.find(names);
  return found != over_nccl_.end() ? *found->second : mesh_.axis(names);
}

Axis* Ranks::optional(const char* name) {
  return mesh_.shape().has(name) ? &axis({name}) : nullptr;
}

std::vector<Axis*> Ranks::all() {
  std::vector<Axis*> result{&shard(),
                            &replicate(),
                            &data(),
                            &tensor(),
                            &pipeline(),
                            optional("ep"),
                            ring(),
                            heads(),
                            &experts_shard(),
                            &same_experts(),
                            ends_ ? ends_->axis() : nullptr};
  std::erase(result, nullptr);
  std::ranges::sort(result);  // without experts, some are one
  const auto twice = std::ranges::unique(result);
  result.erase(twice.begin(), twice.end());
  return result;
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
  if (optional("ep") != nullptr) {
    add(optional("ep"), "ep");
    add(&same_experts(), "same experts");
    add(&experts_shard(), "experts' shards");
  }
  add(ring(), "ring");
  add(heads(), "heads");
  add(&tensor(), "tp");
  add(&pipeline(), "pp");
  add(ends_ ? ends_->axis() : nullptr, "tied");
}

int Ranks::number(const Names& names) const {
  int result = 0;
  for (const std::string& name : names) {
    if (!mesh_.shape().has(name)) continue;
    result = result * mesh_.size(name) + mesh_.coordinate(name);
  }
  return result;
}
int Ranks::data_rank() const { return number({"replicate", "shard", "ep"}); }
int Ranks::positions_rank() const { return number(data_); }

Ranks::Cost Ranks::cost() {
  Cost cost;
  for (Axis* const axis : all()) {
    cost.waited += axis->traffic().waited;
    cost.sent += axis->traffic().total().sent;
    axis->reset_traffic();
  }
  return cost;
}

}  // namespace train
