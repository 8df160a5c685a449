// How a model is spread over ranks: the degree of each strategy, and the units of one rank.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "../sharded/policy.h"
#include "model.h"

namespace tutti::parallel::estimate {

/// The ranks of a mix are a mesh {pipeline, replicas, shards, tensor}, the last one innermost.
struct Mix {
  int replicas = 1, shards = 1, tensor = 1, pipeline = 1;
  /// Of the ranks of replicas and shards, so many share each sequence: ring attention in zigzag
  /// order (sequence/attention.h).
  int context = 1;
  /// What ranks of `shards` share: 0: nothing, they are replicas too (data parallel); 1 to 3: the
  /// stages of ZeRO, 3 being FSDP as well.
  int stage = 0;
  bool sequence = false;   // tensor-parallel ranks have parts of the sequence between pairs
  bool recompute = false;  // each block's forward, in the backward
  Layout layout = Layout::flat;
  Precision precision = Precision::mixed();
  std::size_t optimizer_states = 2;  // of each element, of the master's type: AdamW
  /// A micro-batch's sequences of a data-parallel rank (of the ranks that share them), their
  /// tokens, and micro-batches of a step.
  std::size_t sequences = 1, length = 4096, micro_batches = 1;

  int ranks() const { return replicas * shards * tensor * pipeline; }
  int data() const { return replicas * shards; }
  /// The tokens of a micro-batch that a rank has.
  std::size_t rows() const { return sequences * length / static_cast<std::size_t>(context); }
  /// The sequences of a step.
  std::size_t all_sequences() const {
    return sequences * micro_batches * static_cast<std::size_t>(data() / context);
  }
  Policy policy() const;
  /// "FSDP 8 x TP 8", "DDP 64".
  std::string text() const;
};

/// Throws Error(invalid_argument) for a mix that this model cannot have: the text says which size
/// is not divided by what.
void check(const Mix& mix, const Model& model);

/// A rank's blocks of a stage of the pipeline: the first stages have one more where ranks do not
/// divide them.
std::size_t blocks_of(const Mix& mix, const Model& model, int stage);

/// Equal units that follow each other.
struct HeldUnit {
  Unit unit;
  std::size_t times = 1;
  int uses = 1;  // of each, in a micro-batch's forward
};
/// Those of a rank of this stage.
std::vector<HeldUnit> units_of(const Mix& mix, const Model& model, int stage);

}  // namespace tutti::parallel::estimate
