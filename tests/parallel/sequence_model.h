// A small attention layer in float64, trained on one rank and on a mesh whose ranks divide the
// sequence, and samples and heads too: the results have to be equal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "parallel/sequence/attention.h"

namespace tutti::test {

struct SequenceCase {
  int dp = 1, tp = 1, heads = 1, ring = 1;  // the mesh
  parallel::sequence::KeysTravel keys = parallel::sequence::KeysTravel::ring;
  parallel::sequence::SequenceOrder order = parallel::sequence::SequenceOrder::contiguous;
  bool causal = true;
  bool slices =
      false;  // tensor-parallel ranks have slices of the rows between layers (Megatron-SP)
  bool sharded = false;  // FSDP over dp x heads x ring, instead of DDP
  int ranks() const { return dp * tp * heads * ring; }
  std::string text() const;
};

/// The weights after some steps, one after the other.
std::vector<double> train_alone(bool causal, std::size_t steps);

struct TrainedSequence {
  double worst = 0;        // the largest difference of a weight, relative (at least to 0.01)
  std::uint64_t bits = 0;  // a hash of this rank's weights
};
/// Collective: trains for 5 steps. `alone`: what the weights should be.
TrainedSequence train_sequence(Communicator& world, const SequenceCase& c,
                               const std::vector<double>& alone);

}  // namespace tutti::test
