// The engines of a job whose ranks shard a model, have replicas of it, and divide it by tensor
// parallelism: what checkpoints have to put together again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "parallel/checkpoint/engine.h"

namespace tutti::test {

/// Shards times replicas times tensor-parallel ranks, of which all have an engine of their own.
struct Grid {
  int shards, replicas, tensor;
  int ranks() const { return shards * replicas * tensor; }
};

using ValueAt = std::function<float(const std::string&, std::size_t)>;

/// The engine of one rank of a grid. Its model has matrices that the tensor-parallel ranks divide
/// by rows and columns, a vector of which they have copies, and an empty parameter.
class EngineRank {
 public:
  static constexpr std::size_t kRows = 12, kColumns = 8;

  EngineRank(Communicator& world, const Grid& grid, const parallel::Policy& policy)
      : in_tensor_(static_cast<std::size_t>(world.rank() % grid.tensor)),
        tensor_(static_cast<std::size_t>(grid.tensor)),
        shards_(world.split(
            world.rank() % grid.tensor + grid.tensor * (world.rank() / grid.tensor / grid.shards),
            world.rank())),
        replicas_(world.split(world.rank() % (grid.tensor * grid.shards), world.rank())),
        shard_(shards_),
        replicate_(replicas_),
        engine_(units(), policy, {.shard = &shard_, .replicate = &replicate_}) {}

  parallel::ShardedDataParallel& engine() { return engine_; }
  parallel::ParameterPlace place(parallel::ParameterId id) const {
    const std::size_t rows = kRows / tensor_, columns = kColumns / tensor_;
    if (id.unit == 0 && id.parameter == 0) {
      return {"by rows", {kRows, kColumns}, {in_tensor_ * rows, 0}, {rows, kColumns}};
    }
    if (id.unit == 0) {
      return {"by columns", {kRows, kColumns}, {0, in_tensor_ * columns}, {kRows, columns}};
    }
    if (id.parameter == 0) {
      return {.name = "empty", .shape = {0, kColumns}, .is_copy = in_tensor_ > 0};
    }
    if (id.parameter == 2) {  // divided, though there is nothing to divide
      return {"empty rows", {0, kColumns}, {0, 0}, {0, kColumns}};
    }
    return {.name = "copies", .shape = {5}, .is_copy = in_tensor_ > 0};
  }
  /// `values` of every element of the wholes, by the name of a part.
  void set(const ValueAt& values, std::uint64_t steps) {
    const auto parts = state().wanted();
    for (const parallel::TensorPart& p : parts) {
      if (p.type != DataType::float32) continue;
      p.for_each_run([&](std::size_t whole, std::size_t at, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
          static_cast<float*>(p.data)[at + i] = values(p.name, whole + i);
        }
      });
    }
    for (std::size_t u = 0; u < 2; ++u) {
      for (std::size_t p = 0; p < 2 + u; ++p) engine_.set_steps({u, p}, steps + u + 10 * p);
    }
  }
  /// How many elements and steps are not these.
  std::size_t wrong(const ValueAt& values, std::uint64_t steps) {
    std::size_t bad = 0;
    for (const parallel::TensorPart& p : state().wanted()) {
      if (p.type != DataType::float32) continue;
      p.for_each_run([&](std::size_t whole, std::size_t at, std::size_t n) {
        for (std::size_t i = 0; i < n; ++i) {
          bad += static_cast<float*>(p.data)[at + i] != values(p.name, whole + i) ? 1 : 0;
        }
      });
    }
    for (std::size_t u = 0; u < 2; ++u) {
      for (std::size_t p = 0; p < 2; ++p) {
        bad += engine_.shard({u, p}).steps != steps + u + 10 * p ? 1 : 0;
      }
    }
    return bad;
  }
  parallel::EngineState& state() {
    if (!state_) {
      state_.emplace(engine_, parallel::AdamW(),
                     [this](parallel::ParameterId id) { return place(id); });
    }
    return *state_;
  }

 private:
  std::vector<parallel::Unit> units() const {
    const std::size_t all = kRows * kColumns / tensor_;
    return {{.name = "matrices",
             .parameters = {{"by rows", all, kRows / tensor_}, {"by columns", all, kRows}}},
            {.name = "others",
             .parameters = {{"empty", 0, 0}, {"copies", 5, 5}, {"empty rows", 0, 0}}}};
  }

  const std::size_t in_tensor_, tensor_;
  Communicator shards_, replicas_;
  parallel::CommunicatorAxis shard_, replicate_;
  parallel::ShardedDataParallel engine_;
  std::optional<parallel::EngineState> state_;
};

inline float value_at(const std::string& name, std::size_t place) {
  return static_cast<float>(name.size()) * 1000 + static_cast<float>(name.back()) +
         static_cast<float>(place) / 4;
}

}  // namespace tutti::test
