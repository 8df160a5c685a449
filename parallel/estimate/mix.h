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
  /// order (sequence/attention.h). Of these, so many exchange rows for heads (Ulysses) inside of
  /// the ring.
  int context = 1, heads = 1;
  /// Of the ranks of shards, so many divide the experts among each other (expert_parallel.h).
  int experts = 1;
  bool balance = true;  // with experts: an auxiliary loss keeps them equally busy
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
  int ring() const { return context / heads; }
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
/// The units of a rank of this stage; without experts that other ranks have.
std::vector<HeldUnit> units_of(const Mix& mix, const Model& model, int stage);
/// If ranks divide the experts: a unit for each block, with this rank's. With these, `mix` is that
/// of the ranks that have the same ones, of_experts().
std::vector<HeldUnit> expert_units_of(const Mix& mix, const Model& model, int stage);
Mix of_experts(Mix mix);

}  // namespace tutti::parallel::estimate
