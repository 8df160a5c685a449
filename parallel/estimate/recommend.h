// Which mixes a job may have, and which of them to use.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "time.h"

namespace tutti::parallel::estimate {

/// Everything but model and cluster that describes a job.
struct Job {
  std::size_t length = 4096;  // tokens of a sequence
  std::size_t sequences = 0;  // of a step, of all ranks; 0: as many as make 4 Mi tokens
  Precision precision = Precision::mixed();
};

/// All mixes of the cluster's GPUs that the model can have, whatever memory these have: powers of
/// two and other divisors along each dimension, tensor parallelism and the exchange of heads inside
/// of a host, each stage, with and without recomputing, micro-batches of 1 to 8 sequences (of 1
/// where ranks share a sequence).
std::vector<Mix> mixes(const Model& model, const Cluster& cluster, const Job& job);

struct Recommendation {
  std::size_t tried = 0;         // mixes
  std::optional<Estimate> best;  // the fastest that fits; none if nothing does
  /// Of each kind of mix ("DDP", "FSDP", "FSDP x TP", ...) the fastest that fits, else the one that
  /// lacks least; the fastest kind first.
  std::vector<Estimate> kinds;
  /// No other one that fits is as fast with as little memory: from the fastest to the smallest.
  std::vector<Estimate> pareto;
  /// If nothing fits: the GPUs that the state alone needs, divided among all of them.
  std::size_t gpus_needed = 0;
};

/// With more memory the best mix is never slower: the same mixes are tried. Throws
/// Error(invalid_argument) if the job has fewer sequences than any mix needs.
Recommendation recommend(const Model& model, const Cluster& cluster, const Job& job);

}  // namespace tutti::parallel::estimate
