// Which part of hybrid_model.h a rank of a mesh has.
#pragma once

#include <cstddef>
#include <vector>

#include "parallel/mesh.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/tensor/vocabulary.h"
#include "tests/parallel/hybrid_model.h"
#include "tests/parallel/hybrid_parameters.h"

namespace tutti::test {

/// Where a rank is, and what it has of the model.
struct HybridPlace {
  parallel::Mesh& mesh;
  const HybridCase& c;
  parallel::pipeline::Schedule schedule;
  parallel::tensor::Vocabulary vocabulary;

  HybridPlace(parallel::Mesh& m, const HybridCase& given);
  int tp() const { return mesh.coordinate("tp"); }
  bool has(int stage) const { return schedule.rank_of(stage) == mesh.coordinate("pp"); }
  int last() const { return schedule.stages() - 1; }
  struct Blocks {
    std::size_t first, count;
    std::size_t end() const { return first + count; }
  };
  /// Of a stage.
  Blocks blocks(int stage) const {
    const auto before = [&](int s) {
      return HybridSizes::blocks * static_cast<std::size_t>(s) /
             static_cast<std::size_t>(schedule.stages());
    };
    return {before(stage), before(stage + 1) - before(stage)};
  }
  bool tied() const { return schedule.rank_of(0) != schedule.rank_of(last()); }
  std::size_t rows() const {  // of a micro-batch
    return HybridSizes::rows / static_cast<std::size_t>(c.dp * c.micro_batches);
  }
  std::size_t local_rows() const {
    return c.sequence ? rows() / static_cast<std::size_t>(c.tp) : rows();
  }
};

/// This rank's units, with what they start with and what they should be at the end. Copies that are
/// not the first start with something else: it is up to the engine to make them the same.
std::vector<HeldUnit> held_units(const HybridPlace& at, const Weights& end);

}  // namespace tutti::test
