// Parameters that the same ranks have: whole on every rank, with gradients that are averaged or are
// not; or in shards. A model is one group, but where ranks divide experts among each other: then
// these are a group of their own, of fewer ranks.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "bindings/torch/checkpoint.h"
#include "trainer.h"

namespace train {

class Group {
 public:
  virtual ~Group() = default;
  /// body(input), which computes with the parameters of layer `layer` of the group.
  virtual Tensor forward(std::size_t layer, const tutti::libtorch::Layer& body,
                         const Tensor& input) = 0;
  // As Parameters has them.
  virtual void begin_backward(bool last) = 0;
  virtual void end_backward() = 0;
  virtual void make_later(const std::vector<std::size_t>& layers, bool last,
                          const std::function<void()>& make) = 0;
  virtual void read(const std::function<void(const tutti::libtorch::NamedTensor&)>& read) = 0;
  virtual std::vector<tutti::parallel::TensorPart> saved() = 0;
  virtual std::vector<tutti::parallel::TensorPart> wanted() = 0;
  virtual void loaded() = 0;

  // The three parts of a step.
  /// The step's gradients are reduced, on all ranks that have the parameters.
  virtual void finish() = 0;
  /// Their norm.
  virtual double norm() = 0;
  /// Scales gradients so that `norm`, of all groups, would be at most `clip` (0: does not), and
  /// makes the optimizer's step.
  virtual void update(double clip, double norm) = 0;
};

/// The ranks that have a group's parameters.
struct GroupRanks {
  Ranks::Axis &data, &shard, &replicate;  // as Ranks has them
  std::vector<Ranks::Axis*> parts;        // along which ranks have other parameters
  Ranks::Axis* ends;                      // Ranks::ends()
};
/// `layers` have what ranks reduce together.
std::unique_ptr<Group> make_group(const Options& options, Ranks& ranks, const GroupRanks& of_group,
                                  std::vector<std::shared_ptr<Layer>> layers);

}  // namespace train
