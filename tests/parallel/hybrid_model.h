// A model small enough to be written by hand, like a transformer without attention: an embedding,
// blocks of a norm and two linear layers with a residual connection, a norm, and logits by the
// embedding's matrix again (tied). It is trained by one rank, in plain loops, and by the ranks of a
// mesh in any mixture of data, tensor and pipeline parallelism: what they have at the end is to be
// what the one rank has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "parallel/axis.h"
#include "parallel/sharded/policy.h"
#include "parallel/trace.h"
#include "tests/comm/matrix_reference.h"

namespace tutti::test {

struct HybridSizes {
  static constexpr std::size_t tokens = 29, width = 8, hidden = 16, blocks = 8;
  static constexpr std::size_t sequences = 8, length = 8;  // of a batch, of all ranks together
  static constexpr std::size_t rows = sequences * length;
};

/// All parameters.
struct Weights {
  struct Norm {
    Matrix gain{1, HybridSizes::width}, bias{1, HybridSizes::width};
  };
  struct Block {
    Norm norm;
    Matrix w1{HybridSizes::hidden, HybridSizes::width}, b1{1, HybridSizes::hidden};
    Matrix w2{HybridSizes::width, HybridSizes::hidden}, b2{1, HybridSizes::width};
  };
  Matrix embedding{HybridSizes::tokens, HybridSizes::width};
  std::vector<Block> blocks{HybridSizes::blocks};
  Norm norm;

  static Weights initial();
};

struct TrainedAlone {
  Weights weights;
  std::vector<double> norms, losses;  // by step
};
/// AdamW with clipping, written out, without any of the library.
TrainedAlone train_alone(std::size_t steps);

struct HybridCase {
  int dp = 1, tp = 1, pp = 1;
  int micro_batches = 2;
  bool sequence = false;  // sequence parallelism
  std::size_t pieces = 1;
  const char* schedule = "1f1b";
  int chunks = 0;
  /// 0: DataParallel, with an optimizer on all of the gradients; else ShardedDataParallel.
  int zero = 0;
  parallel::Layout layout = parallel::Layout::flat;
  std::size_t steps = 5;
  std::size_t not_finite_in = 1000;  // the step in which one rank makes a gradient that is not
  std::shared_ptr<parallel::Trace> trace{};
  std::function<void(std::size_t)> before_step{};

  std::string text() const;
};

struct TrainedHybrid {
  std::vector<double> parameters;     // those that this rank computes with
  std::vector<double> norms, losses;  // by step; losses on the last stage, else empty
  double worst = 0;                   // the largest difference to what one rank has
  std::string unequal;                // which copy has other bits than another one; "": none
  // What the rank carried in the last step.
  parallel::Traffic data, tensor, pipeline, ends;
};

TrainedHybrid train_hybrid(Communicator& world, const HybridCase& c, const TrainedAlone& alone);

}  // namespace tutti::test
