// Parameters with copies on several ranks of a mesh that differ in other dimensions than data
// parallelism. This keeps the copies equal, by their gradients, and lets the norm count them once.
//
//     - Whole inside tensor parallelism: norms, the biases of row-parallel layers. Without sequence
//       parallelism all ranks compute equal gradients. With it, each computes the gradient of its
//       slice of the sequence, and the tensor axis adds them up.
//     - Tied: the embedding on the first stage of a pipeline and the output on the last one are one
//       parameter, and its gradient is the sum of both.
//
//     PipelineEnds ends(mesh.axis("pp"));
//     SharedGradients shared({.tensor = &mesh.axis("tp"), .ends = ends.axis()},
//                            {{"norm", Copies::partial}, {"embedding", Copies::none, true}, ...});
//     shared.begin(values);      // the copies are the same
//     for each step:
//       ...                      // backward; gradients are reduced over the data axis
//       shared.reduce(gradients);
//       norm = shared.norm(gradients, axes);   // or ShardedDataParallel's, with in_norm()
//
// It sees runs of elements: a whole parameter, or, with a sharded engine, the shard of this rank.
// All ranks with copies have the same elements in their shards. It is memory of the axes' device.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../axis.h"
#include "../memory_pool.h"

namespace tutti::parallel {

/// The copies of a parameter on ranks of the tensor axis.
enum class Copies : unsigned char {
  none,     // each has a part of its own
  equal,    // all have all of it, and equal gradients
  partial,  // all have all of it, and gradients that are to be added up
};

struct SharedParameter {
  std::string name;
  Copies copies = Copies::none;
  bool tied = false;  // the first and the last stage have it
};

struct SharedAxes {
  Axis* tensor = nullptr;  // null: there is none
  Axis* ends = nullptr;    // PipelineEnds::axis()
};

/// The first and the last stage of a pipeline, as an axis of two ranks.
class PipelineEnds {
 public:
  /// Collective over the axis. `first` and `last`: the ranks of those stages; by default the first
  /// and the last rank of the axis. Their axis is on the device that the pipeline's is on now.
  explicit PipelineEnds(CommunicatorAxis& pipeline, int first = 0, int last = -1);
  /// Null on other ranks, and if one rank has both stages.
  CommunicatorAxis* axis() { return axis_ ? &*axis_ : nullptr; }

 private:
  Communicator pair_;
  std::optional<CommunicatorAxis> axis_;
};

class SharedGradients {
 public:
  /// This rank's parameters; each is a run in the calls below. Collective: if ranks have copies of
  /// different parameters, all of them throw Error(mismatch).
  SharedGradients(const SharedAxes& axes, std::vector<SharedParameter> parameters);

  struct Run {
    void* data = nullptr;
    std::size_t count = 0;
    DataType type = DataType::float32;
    std::size_t begin = 0;  // the first one's place in the parameter
  };

  std::size_t size() const { return parameters_.size(); }
  /// Whether this rank counts parameter i in the norm: one of the ranks with copies does.
  bool in_norm(std::size_t i) const;

  /// Collective: copies become those of the tensor axis' rank 0, and of the first stage. If ranks
  /// have copies of other elements, all of them throw Error(mismatch): give a tied parameter a unit
  /// of its own.
  void begin(std::span<const Run> values);
  /// Collective. Call it after the reduction of gradients over the data axis (or before; but not in
  /// between). The copies' gradients have the same bits then.
  void reduce(std::span<const Run> gradients);
  /// The norm of the gradients of all ranks of `axes`: tensor and pipeline, and the axes that shard
  /// gradients. The same bits on all.
  double norm(std::span<const Run> gradients, std::span<Axis* const> axes) const;

 private:
  template <class Chosen>
  void together(Axis& axis, std::span<const Run> runs, Collective collective, const char* what,
                const Chosen& chosen);
  void check(std::span<const Run> runs) const;
  template <class Chosen>
  void check_elements(Axis& axis, std::span<const Run> runs, const Chosen& chosen) const;

  const SharedAxes axes_;
  const std::vector<SharedParameter> parameters_;
  MemoryPool memory_;  // of the axes' device
  std::uint16_t tensor_label_ = 0, ends_label_ = 0;
};

}  // namespace tutti::parallel
