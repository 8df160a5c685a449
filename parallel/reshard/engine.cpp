#include "parallel/reshard/engine.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"

namespace tutti::parallel::reshard {
namespace {

/// Calls use(tensor, id) for each parameter.
template <class Use>
void each_parameter(const ShardedDataParallel& engine, std::span<const Tensor> tensors,
                    const Use& use) {
  std::size_t next = 0;
  for (std::size_t u = 0; u < engine.units(); ++u) {
    for (std::size_t p = 0; p < engine.unit(u).parameters.size(); ++p, ++next) {
      const UnitParameter& parameter = engine.unit(u).parameters[p];
      if (next >= tensors.size() || tensors[next].elements() != parameter.count ||
          tensors[next].type != engine.policy().precision.master) {
        throw Error(
            ErrorCode::invalid_argument,
            fmt::format("layout: the engine's parameter number {} is '{}', {} elements of "
                        "{}, and {}",
                        next, parameter.name, parameter.count,
                        name(engine.policy().precision.master),
                        next < tensors.size()
                            ? fmt::format("the tensor '{}' has {} of {}", tensors[next].name,
                                          tensors[next].elements(), name(tensors[next].type))
                            : fmt::format("there are {} tensors", tensors.size())));
      }
      use(tensors[next], ParameterId{u, p});
    }
  }
  if (next != tensors.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("layout: the engine has {} parameters, and there are {} tensors", next,
                            tensors.size()));
  }
}

}  // namespace

void add_engine(Layout& layout, const ShardedDataParallel& engine, std::span<const Tensor> tensors,
                std::span<const int> ranks) {
  const auto size = static_cast<std::size_t>(engine.axes().shard->size());
  if (ranks.size() != size) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("layout: the engine's shard axis has {} ranks, and there are {}", size,
                            ranks.size()));
  }
  each_parameter(engine, tensors, [&](const Tensor& tensor, ParameterId id) {
    layout.tensor(tensor);
    for (std::size_t r = 0; r < size; ++r) {
      const LocalRange local = engine.layout(id.unit).local(id.parameter, r);
      add_run(layout, tensor, ranks[r], local.begin, local.count, tensor.name, 0);
    }
  });
}

std::vector<void*> memory_of(const Layout& layout, const ShardedDataParallel& engine,
                             std::span<const Tensor> tensors) {
  std::vector<void*> memory(layout.buffers.size());
  each_parameter(engine, tensors, [&](const Tensor& tensor, ParameterId id) {
    const auto buffer = std::ranges::find(layout.buffers, tensor.name);
    if (buffer == layout.buffers.end()) return;  // of no elements
    memory[static_cast<std::size_t>(buffer - layout.buffers.begin())] = engine.shard(id).master;
  });
  return memory;
}

}  // namespace tutti::parallel::reshard
