// The ways to keep parameters: whole on every rank, with gradients that are averaged or are not; or
// in shards.
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <optional>

#include "bindings/torch/checkpoint.h"
#include "bindings/torch/data_parallel.h"
#include "bindings/torch/fully_shard.h"
#include "bindings/torch/optimizer.h"
#include "examples/train/trainer.h"

namespace train {
namespace {

namespace lib = tutti::libtorch;
namespace parallel = tutti::parallel;

parallel::AdamW adamw(double rate, double decay) {
  return parallel::AdamW({.learning_rate = rate, .weight_decay = decay});
}
double decays(const lib::NamedTensor& parameter) { return parameter.tensor.dim() > 1 ? 1 : 0; }

lib::Layer layer_function(const std::shared_ptr<Layer>& layer, bool recompute) {
  lib::Layer body = [layer](const Tensor& x) { return layer->forward(x); };
  if (!recompute) return body;
  return [body](const Tensor& x) { return lib::checkpoint(body, x); };
}

/// As one module, to be walked for its parameters.
struct All final : torch::nn::Module {
  explicit All(const std::vector<std::shared_ptr<Layer>>& layers) {
    for (const auto& layer : layers) register_module(layer->name(), layer);
  }
};

class Whole final : public Parameters {
 public:
  Whole(const Options& options, Ranks& ranks, const std::vector<std::shared_ptr<Layer>>& layers)
      : all_(layers), optimizer_(lib::trained_parameters(all_), decays) {
    if (!options.alone) averages_.emplace(ranks.data(), all_);
    for (const auto& layer : layers) {
      functions_.push_back(layer_function(layer, options.recompute));
    }
  }
  Tensor forward(std::size_t layer, const Tensor& input) override {
    return functions_[layer](input);
  }
  void begin_backward(bool last) override {
    if (averages_ && !last) no_sync_.emplace(averages_->engine());
  }
  void end_backward() override {
    if (averages_) averages_->finish();
    no_sync_.reset();
  }
  double step(double clip, double rate, double decay) override {
    const double norm = clip > 0 ? optimizer_.clip_gradients(clip) : 0;
    optimizer_.step(adamw(rate, decay));
    optimizer_.zero_grad();
    return norm;
  }
  void read(const std::function<void(const lib::NamedTensor&)>& read) override {
    for (const lib::NamedTensor& p : lib::trained_parameters(all_)) read(p);
  }

 private:
  All all_;
  lib::LocalOptimizer optimizer_;
  std::optional<lib::DataParallel> averages_;
  std::optional<parallel::DataParallel::NoSync> no_sync_;
  std::vector<lib::Layer> functions_;
};

parallel::Policy policy_of(const Options& options) {
  const auto precision = parallel::Precision::of(lib::data_type(options.shape.type, "the model"));
  switch (options.shard) {
    case Sharding::zero1:
      return parallel::Policy::zero1(precision);
    case Sharding::zero2:
      return parallel::Policy::zero2(precision);
    case Sharding::zero3:
      return parallel::Policy::zero3(precision);
    default:
      return parallel::Policy::fsdp(precision);
  }
}

class Shards final : public Parameters {
 public:
  Shards(const Options& options, Ranks& ranks, std::vector<std::shared_ptr<Layer>> layers)
      : layers_(std::move(layers)),
        shards_({.shard = &ranks.shard(),
                 .replicate = options.replicas > 1 ? &ranks.replicate() : nullptr},
                units(), policy_of(options), decays) {
    for (const auto& layer : layers_) {
      functions_.push_back(layer_function(layer, options.recompute));
    }
  }
  Tensor forward(std::size_t layer, const Tensor& input) override {
    return shards_.forward(layer, functions_[layer], input);
  }
  void begin_backward(bool last) override { shards_.synchronise(last); }
  void end_backward() override { shards_.finish(); }
  double step(double clip, double rate, double decay) override {
    const double norm = clip > 0 ? shards_.engine().clip_gradients(clip) : 0;
    shards_.engine().step(adamw(rate, decay));
    return norm;
  }
  void read(const std::function<void(const lib::NamedTensor&)>& read) override {
    shards_.read_parameters(read);
  }

 private:
  std::vector<lib::FullyShard::Unit> units() const {
    std::vector<lib::FullyShard::Unit> result;
    for (const auto& layer : layers_) {
      lib::FullyShard::Unit& unit = result.emplace_back();
      unit.name = layer->name();
      unit.module = layer.get();
    }
    // Its backward comes next.
    result.back().reshard = parallel::Reshard::no;
    return result;
  }
  const std::vector<std::shared_ptr<Layer>> layers_;
  lib::FullyShard shards_;
  std::vector<lib::Layer> functions_;
};

}  // namespace

std::unique_ptr<Parameters> make_parameters(const Options& options, Ranks& ranks,
                                            std::vector<std::shared_ptr<Layer>> layers) {
  if (options.shard == Sharding::none) return std::make_unique<Whole>(options, ranks, layers);
  return std::make_unique<Shards>(options, ranks, std::move(layers));
}

}  // namespace train
