// FullyShard, where its parameters are there as a whole: to be read, saved, loaded, given back.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/accumulate.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "bindings/torch/fully_shard.h"
#include "bindings/torch/fully_shard_unit.h"
#include "core/error.h"

namespace tutti::libtorch {

using WhatIsKept = parallel::ShardedDataParallel::Kept;

namespace {

/// For all elements of a unit, of the master's type: where collectives of the engine can write.
Tensor elements_of(const parallel::ShardedDataParallel& engine, std::size_t unit,
                   c10::Device tensors) {
  const auto count = static_cast<std::int64_t>(engine.layout(unit).full());
  const DataType type = engine.policy().precision.master;
  parallel::Device& device = engine.device();
  if (!device.is_gpu()) return at::empty({count}, scalar_type(type));
  const std::shared_ptr<void> memory(
      device.allocate(engine.layout(unit).full() * size_of(type)), [&device](void* data) {
        device.release(static_cast<std::byte*>(data), device.record(device.current()));
      });
  return tensor_over(memory, {count}, scalar_type(type), tensors);
}

/// All elements of a unit's parameters, as the engine lays them out.
class WholeUnit {
 public:
  WholeUnit(parallel::ShardedDataParallel& engine, std::size_t unit, WhatIsKept what,
            c10::Device device)
      : layout_(engine.layout(unit)), elements_(elements_of(engine, unit, device)) {
    engine.gather(unit, what, elements_.mutable_data_ptr());
  }
  Tensor of(std::size_t parameter, at::IntArrayRef sizes) const {
    const auto first = static_cast<std::int64_t>(layout_.offset(parameter));
    return elements_.narrow(0, first, c10::multiply_integers(sizes)).view(sizes);
  }

 private:
  const parallel::UnitLayout& layout_;
  Tensor elements_;
};

/// What it keeps of each element: parameters, then the optimizer's states.
constexpr WhatIsKept kAllKept[] = {WhatIsKept::parameters, WhatIsKept::first_state,
                                   WhatIsKept::second_state};

}  // namespace

// What takes a tensor's place, as torch::load() does, would be forgotten.
void FullyShard::refuse_replaced(UnitState& u) {
  const std::size_t p = u.replaced();
  if (p == u.parameters.size()) return;
  const std::string why = fmt::format(
      "the parameter {} of unit '{}' was given other memory since it is in shards (torch::load(), "
      "set_data()), which knows nothing of it: load a module before it is wrapped, or by "
      "FullyShard::load()",
      u.parameters[p].name, u.name);
  abort("cannot go on: " + why);
  throw Error(ErrorCode::invalid_usage, why);
}

void FullyShard::refuse_restored(const char* call) const {
  if (alive_->self != nullptr) return;
  throw Error(
      ErrorCode::invalid_usage,
      fmt::format("FullyShard::{} after restore(), which was the end of it: its modules have "
                  "their parameters back",
                  call));
}

// Not the engine's.
std::vector<NamedTensor> FullyShard::others() const {
  std::vector<NamedTensor> all = frozen_;
  all.insert(all.end(), buffers_.tensors().begin(), buffers_.tensors().end());
  return all;
}

// The names of everything that is saved, in its order. Without a name of its own, a tensor could
// not be found again.
std::vector<std::string> FullyShard::names() const {
  std::vector<std::string> all;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    for (const NamedTensor& p : units_[u]->parameters) {
      all.push_back(units_[u]->name + "." + p.name);
    }
  }
  for (const NamedTensor& t : others()) all.push_back(t.name);
  std::vector<std::string> sorted = all;
  std::ranges::sort(sorted);
  const auto twice = std::ranges::adjacent_find(sorted);
  if (twice == sorted.end()) return all;
  throw Error(ErrorCode::invalid_usage,
              fmt::format("two tensors are called {}: units need names of their own", *twice));
}

void FullyShard::read_parameters(const std::function<void(const NamedTensor&)>& read) {
  refuse_restored("read_parameters()");
  const at::NoGradGuard no_grad;
  for (auto& u : units_) {
    enter_forward(*u);
    or_abort("failed in read_parameters()", [&] {
      for (const NamedTensor& p : u->parameters) read({u->name + "." + p.name, p.tensor});
    });
    leave_forward(*u);
  }
}

void FullyShard::save(const WriteState& write) {
  refuse_restored("save()");
  const at::NoGradGuard no_grad;
  const std::vector<std::string> all_names = names();
  auto name = all_names.begin();
  for (std::size_t u = 0; u < units_.size(); ++u) {
    refuse_replaced(*units_[u]);
    std::vector<WholeUnit> kept;
    for (std::size_t i = 0; i <= engine_->states(); ++i)
      kept.emplace_back(*engine_, u, kAllKept[i], device_);
    or_abort("failed in FullyShard::save()", [&] {
      for (std::size_t p = 0; p < units_[u]->parameters.size(); ++p) {
        const at::IntArrayRef sizes = units_[u]->parameters[p].tensor.sizes();
        ParameterState all{.name = *name++,
                           .value = kept[0].of(p, sizes),
                           .state = {},
                           .steps = engine_->shard({u, p}).steps};
        for (std::size_t i = 1; i < kept.size(); ++i) all.state.push_back(kept[i].of(p, sizes));
        write(all);
      }
    });
  }
  or_abort("failed in FullyShard::save()", [&] {
    for (const NamedTensor& t : others()) {
      write({.name = *name++, .value = t.tensor.detach(), .state = {}, .steps = 0});
    }
  });
}

void FullyShard::load(const parallel::Optimizer& optimizer, const ReadState& read) {
  refuse_restored("load()");
  const at::NoGradGuard no_grad;
  const at::ScalarType type = scalar_type(engine_->policy().precision.master);
  or_abort("failed in FullyShard::load()", [&] {
    const std::vector<std::string> all_names = names();
    auto name = all_names.begin();
    engine_->prepare(optimizer);
    for (std::size_t u = 0; u < units_.size(); ++u) {
      refuse_replaced(*units_[u]);
      for (std::size_t p = 0; p < units_[u]->parameters.size(); ++p) {
        const ParameterState all = read_state(
            read, *name++, units_[u]->parameters[p].tensor.sizes(), type, engine_->states());
        engine_->load({u, p}, all.value.const_data_ptr());
        for (std::size_t i = 0; i < all.state.size(); ++i) {
          engine_->load_state({u, p}, i, all.state[i].const_data_ptr());
        }
        engine_->set_steps({u, p}, all.steps);
      }
    }
    for (const NamedTensor& t : others()) {
      const at::ScalarType its_type = t.tensor.scalar_type();
      t.tensor.copy_(read_state(read, *name++, t.tensor.sizes(), its_type, 0).value);
    }
  });
  engine_->share_parameters();
}

FullyShard::~FullyShard() { let_go(); }

void FullyShard::let_go() {
  if (alive_->self == nullptr) return;
  alive_->self = nullptr;
  places_.reset();
  for (auto& u : units_) u->let_go();
}

void FullyShard::restore() {
  refuse_restored("restore()");
  const at::NoGradGuard no_grad;
  std::vector<Tensor> values;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    refuse_replaced(*units_[u]);
    const WholeUnit kept(*engine_, u, WhatIsKept::parameters, device_);
    for (std::size_t p = 0; p < units_[u]->parameters.size(); ++p) {
      values.push_back(kept.of(p, units_[u]->parameters[p].tensor.sizes())
                           .to(units_[u]->type_before(p), /*non_blocking=*/false, /*copy=*/true));
    }
  }
  let_go();
  auto value = values.begin();
  for (std::size_t u = 0; u < units_.size(); ++u) {
    for (const NamedTensor& p : units_[u]->parameters) p.tensor.set_data(*value++);
  }
}

}  // namespace tutti::libtorch
