#include "parallel/checkpoint/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tutti::parallel {

bool ParameterPlace::has_first() const {
  return std::ranges::all_of(offset, [](std::size_t o) { return o == 0; }) &&
         std::ranges::all_of(extent, [](std::size_t e) { return e > 0; });
}

std::vector<TensorPart> state_parts(const ParameterPlace& place, DataType type, std::size_t begin,
                                    std::size_t count, void* value, std::span<void* const> states) {
  std::vector<TensorPart> parts;
  const auto add = [&](std::string name, void* data) {
    parts.push_back({.name = std::move(name),
                     .type = type,
                     .shape = place.shape,
                     .offset = place.offset,
                     .extent = place.extent,
                     .begin = begin,
                     .count = count,
                     .data = data});
  };
  add(place.name, value);
  for (std::size_t i = 0; i < states.size(); ++i) {
    add(fmt::format("{}.state{}", place.name, i), states[i]);
  }
  return parts;
}

TensorPart steps_part(const ParameterPlace& place, std::uint64_t* steps) {
  TensorPart part = TensorPart::whole(place.name + ".steps", DataType::uint64, {1}, steps);
  if (!place.extent.empty() && elements_of(place.shape) == 0) part.count = 0;
  return part;
}

EngineState::EngineState(ShardedDataParallel& engine, const Optimizer& optimizer,
                         const PlaceOf& places)
    : engine_(engine) {
  refuse_gpu(engine.device(), "a checkpoint of a sharded engine");
  engine.prepare(optimizer);
  const DataType type = engine.policy().precision.master;
  const Axis* const replicate = engine.axes().replicate;
  const bool is_replica = replicate != nullptr && replicate->rank() > 0;
  for (std::size_t u = 0; u < engine.units(); ++u) {
    steps_.emplace_back(engine.unit(u).parameters.size());
    for (std::size_t p = 0; p < engine.unit(u).parameters.size(); ++p) {
      const ShardedDataParallel::Shard shard = engine.shard({u, p});
      const ParameterPlace place = places({u, p});
      const auto parts = state_parts(place, type, shard.begin, shard.count, shard.master,
                                     std::span(shard.state).first(engine.states()));
      wanted_.insert(wanted_.end(), parts.begin(), parts.end());
      wanted_.push_back(steps_part(place, &steps_[u][p]));
      if (is_replica || place.is_copy) continue;
      saved_.insert(saved_.end(), parts.begin(), parts.end());
      const bool is_empty = engine.unit(u).parameters[p].count == 0;
      const bool has_first =
          is_empty ? engine.axes().shard->rank() == 0 : shard.count > 0 && shard.begin == 0;
      if (has_first && place.has_first()) saved_.push_back(wanted_.back());
    }
  }
}

void EngineState::each(const std::function<void(ParameterId, std::uint64_t&)>& visit) {
  for (std::size_t u = 0; u < engine_.units(); ++u) {
    for (std::size_t p = 0; p < steps_[u].size(); ++p) visit({u, p}, steps_[u][p]);
  }
}

std::vector<TensorPart> EngineState::saved() {
  each([this](ParameterId id, std::uint64_t& steps) { steps = engine_.shard(id).steps; });
  return saved_;
}

void EngineState::loaded() {
  each([this](ParameterId id, std::uint64_t& steps) { engine_.set_steps(id, steps); });
  engine_.share_parameters();
}

}  // namespace tutti::parallel
