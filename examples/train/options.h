// The options of the program: sizes of the model, and the mix of ways in which it is spread over
// ranks.
#pragma once

#include <cstdint>
#include <string>

#include "shape.h"

namespace train {

/// How the ranks of the data dimension share a model.
enum class Sharding { none, zero1, zero2, zero3, fsdp };

struct Options {
  Shape shape;
  // The mix. dp times tp times pp ranks; 0: as many as there are.
  int dp = 0, tp = 1, pp = 1;
  int cp = 1;        // of the dp ranks, those that share each sequence
  int cp_heads = 1;  // of these, those that exchange rows for heads; the others form a ring
  int ep = 1;        // of the dp ranks, those that divide the experts among each other
  int replicas = 1;  // of the dp ranks, that have the same shards (HSDP)
  Sharding shard = Sharding::none;
  std::string schedule = "1f1b";
  int micro_batches = 1;
  bool sequence = false;   // tensor-parallel ranks have parts of the sequence between blocks
  bool recompute = false;  // blocks, in backward
  bool alone = false;      // ranks that train each for itself: what communication is
                           // compared with
  double balance = 0.01;   // the coefficient of the loss that keeps experts equally busy
  // The training.
  std::int64_t batch = 8;  // sequences of a step, of all ranks together
  int steps = 40;
  double rate = 1e-3, decay = 0.1, clip = 1.0;
  std::uint64_t seed = 1;
  std::string text = ".";
  int threads = 1;
  int report = 5;          // steps between two lines
  bool invariant = false;  // as tutti::Options::invariant
  bool check_nan = false;  // a loss or gradient that is not finite ends the training
  std::string save;        // a folder of checkpoints; "": none are written
  int every = 50;          // steps between two of them; the last step has one, too
  bool resume = false;     // begin with the newest one
  std::string trace;       // a file
  std::string nccl;        // a libnccl.so.2 that carries the engines' calls

  /// Fills in dp. Throws tutti::Error(invalid_argument) for a mix that cannot
  /// be.
  void fit(int ranks);
  /// A rank's sequences of a micro-batch, which it may share with other ranks.
  std::int64_t sequences() const { return batch / (dp / cp) / micro_batches; }
  /// "dp 2 (fsdp) x tp 2".
  std::string mix() const;
};

/// Exits the program for --help, and with an explanation for what it does not
/// understand.
Options parse_options(int argc, char** argv);

}  // namespace train
