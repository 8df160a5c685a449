// Training steps of the model, in the mix that was asked for: the same losses
// in every mix, but for rounding.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bindings/torch/check_finite.h"
#include "bindings/torch/pipeline.h"
#include "bindings/torch/tensors.h"
#include "model.h"
#include "options.h"
#include "ranks.h"
#include "text.h"

namespace train {

/// How gradients and parameters are kept among the dp ranks.
class Parameters {
 public:
  virtual ~Parameters() = default;
  /// Layer `layer` of those that this rank has.
  virtual Tensor forward(std::size_t layer, const Tensor& input) = 0;
  /// Around each of torch's backwards; `last`: these layers have no other one
  /// in this step.
  virtual void begin_backward(bool last) = 0;
  virtual void end_backward() = 0;
  /// Instead, where `make` makes gradients of these layers that a backward has
  /// left for later.
  virtual void make_later(const std::vector<std::size_t>& layers, bool last,
                          const std::function<void()>& make) = 0;
  /// Clips, and makes the optimizer's step. Returns the gradients' norm, or 0.
  virtual double step(double clip) = 0;
  /// Collective: of each parameter of this rank's layers, all elements.
  virtual void read(const std::function<void(const tutti::libtorch::NamedTensor&)>& read) = 0;
  /// For checkpoints: this rank's parts of parameters and of the optimizer's
  /// state, each saved by one rank of those that have copies.
  virtual std::vector<tutti::parallel::TensorPart> saved() = 0;
  /// The parts that it loads; and the step after these are filled in (collective).
  virtual std::vector<tutti::parallel::TensorPart> wanted() = 0;
  virtual void loaded() = 0;
};
/// `ends`: Ranks::ends().
std::unique_ptr<Parameters> make_parameters(const Options& options, Ranks& ranks, Ranks::Axis* ends,
                                            std::vector<std::shared_ptr<Layer>> layers);

class Trainer {
 public:
  /// Collective. `options` fits the ranks.
  Trainer(Ranks& ranks, const Options& options);
  ~Trainer();

  struct Result {
    double loss = 0,
           norm = 0;  // of all ranks; the norm where gradients are clipped
  };
  Result step(const Text& text, std::uint64_t number);
  Parameters& parameters() { return *parameters_; }
  /// The steps that follow are written down: layers here, on the track "model", and what the ranks'
  /// axes do.
  void trace(std::shared_ptr<tutti::parallel::Trace> trace);

 private:
  /// Of this rank's positions.
  Batch batch(int micro_batch) const;
  Tensor forward(int stage, int micro_batch, const Tensor& input);
  double without_pipeline();
  /// What is computed from here on, until the next; an empty name: nothing.
  void computes(const std::string& what);

  Ranks& ranks_;
  const Options options_;
  const Split split_;
  const tutti::parallel::pipeline::Schedule schedule_;  // of one rank: no pipeline
  std::map<int, std::vector<std::size_t>> layers_;      // of this rank, by stage
  Loss loss_;
  std::vector<std::string> names_;                     // of this rank's layers
  std::optional<tutti::libtorch::CheckFinite> check_;  // with --check-nan
  std::unique_ptr<Parameters> parameters_;
  std::optional<tutti::libtorch::Pipeline> pipeline_;
  // Of the present step:
  const Text* text_ = nullptr;
  std::uint64_t number_ = 0;
  std::shared_ptr<tutti::parallel::Trace> trace_;
  std::string computes_;
  tutti::parallel::Trace::Clock::time_point computes_since_;
};

}  // namespace train
