// Parameters that several ranks of a mesh have copies of, although other dimensions than data
// parallelism tell these ranks apart: what has to be done with their gradients so that the copies
// stay the same, and are counted once.
//
//     - Whole inside tensor parallelism: norms, the biases of row-parallel layers. Without sequence
//       parallelism all ranks compute equal gradients. With it, each computes that of its slice of
//       the sequence: they are added up over the tensor axis.
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
// It sees runs of elements: all of a parameter, or, with a sharded engine, the shard of this rank,
// which has the same elements on all ranks that have copies.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "../axis.h"

namespace tutti::parallel {

/// What ranks of the tensor axis have of a parameter.
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
  /// Collective over the axis. `first` and `last`: the ranks of those stages; the axis' own unless
  /// it is said otherwise.
  explicit PipelineEnds(CommunicatorAxis& pipeline, int first = 0, int last = -1);
  /// Null on other ranks, and where both stages are on one.
  CommunicatorAxis* axis() { return axis_ ? &*axis_ : nullptr; }

 private:
  Communicator pair_;
  std::optional<CommunicatorAxis> axis_;
};

class SharedGradients {
 public:
  /// This rank's parameters, each of which is a run in the calls below. Collective: ranks that have
  /// copies of different parameters throw Error(mismatch), all of them.
  SharedGradients(const SharedAxes& axes, std::vector<SharedParameter> parameters);

  struct Run {
    void* data = nullptr;
    std::size_t count = 0;
    DataType type = DataType::float32;
  };

  std::size_t size() const { return parameters_.size(); }
  /// Whether this rank counts parameter i in the norm: one of those that have copies does.
  bool in_norm(std::size_t i) const;

  /// Collective: copies become those of the tensor axis' rank 0, and of the first stage.
  void begin(std::span<const Run> values);
  /// Collective, after gradients were reduced over the data axis (or before; but not in between).
  /// The copies' gradients have the same bits then.
  void reduce(std::span<const Run> gradients);
  /// The norm of the gradients of all ranks of `axes`: tensor and pipeline, and the axes that
  /// gradients are sharded over. The same bits on all.
  double norm(std::span<const Run> gradients, std::span<Axis* const> axes) const;

 private:
  template <class Chosen>
  void together(Axis& axis, std::span<const Run> runs, Collective collective, const char* label,
                const Chosen& chosen);
  void check(std::span<const Run> runs) const;

  const SharedAxes axes_;
  const std::vector<SharedParameter> parameters_;
};

}  // namespace tutti::parallel
