// A model small enough to be written by hand, trained sharded and on one rank: what the ranks have
// at the end is to be what the one rank has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "parallel/sharded/sharded.h"

namespace tutti::test {

/// Layers of y = W x + b, tanh between them, half the squared error at the end; float64.
class Mlp {
 public:
  explicit Mlp(std::vector<std::size_t> widths) : widths_(std::move(widths)) {}

  /// A unit for each layer: W, b, and a parameter of no elements.
  std::vector<parallel::Unit> units() const;
  std::size_t layers() const { return widths_.size() - 1; }
  std::size_t in(std::size_t layer) const { return widths_[layer]; }
  std::size_t out(std::size_t layer) const { return widths_[layer + 1]; }
  /// What W and b start with.
  std::vector<double> weight(std::size_t layer) const;
  std::vector<double> bias(std::size_t layer) const;

  void forward(std::size_t layer, const double* w, const double* b, const std::vector<double>& x,
               std::vector<double>& y) const;
  /// dy becomes the gradient by x; those by W and b are added to.
  void backward(std::size_t layer, const double* w, const std::vector<double>& x,
                const std::vector<double>& y, std::vector<double>& dy, double* gw,
                double* gb) const;

 private:
  std::vector<std::size_t> widths_;
};

/// Sample `sample` of step `step`: input and target.
std::vector<double> sample_input(std::size_t step, std::size_t sample, std::size_t width);
std::vector<double> sample_target(std::size_t step, std::size_t sample, std::size_t width);

struct ShardedCase {
  parallel::Policy policy = parallel::Policy::zero3(parallel::Precision::of(DataType::float64));
  int replicas = 1;
  int group = 0;  // ranks of the small group; 0: none
  std::size_t micro_batches = 1;
  bool reduce_each = false;  // every micro-batch, not the last alone
  std::size_t steps = 5;
  bool momentum = false;   // SGD, not AdamW
  bool evaluates = false;  // forwards alone between the steps
  std::function<void(std::size_t)> after_step{};
};

struct Trained {
  std::vector<double> parameters;  // all of them, layer by layer, W then b
  std::vector<double> norms;       // of the gradients, step by step
};

/// The axes of `comm`, whose rank r is rank r % shards of replica r / shards.
class ShardedMesh {
 public:
  ShardedMesh(Communicator& comm, int replicas, int group);
  parallel::ShardedAxes axes();
  parallel::CommunicatorAxis& shard() { return *shard_; }
  parallel::CommunicatorAxis* replicate() { return replicate_ ? &*replicate_ : nullptr; }
  parallel::CommunicatorAxis* group() { return group_ ? &*group_ : nullptr; }

 private:
  Communicator shards_, replicas_, groups_;
  std::optional<parallel::CommunicatorAxis> shard_, replicate_, group_;
};

inline constexpr std::size_t kBatch = 144;  // samples of a step, of all ranks together
inline constexpr double kMostNorm = 0.1;    // some steps are clipped, some are not

Trained train_sharded(Communicator& comm, const Mlp& mlp, const ShardedCase& c);
/// Written out, without any of the library.
Trained train_alone(const Mlp& mlp, std::size_t steps, bool momentum);

/// The largest difference, as a part of the expected number (at least of 0.01).
double difference(const std::vector<double>& got, const std::vector<double>& expected);

}  // namespace tutti::test
