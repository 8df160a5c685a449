#include "examples/train/parameter_groups.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "bindings/torch/data_parallel.h"
#include "bindings/torch/fully_shard.h"
#include "bindings/torch/optimizer.h"
#include "core/combine.h"
#include "core/types.h"
#include "parallel/checkpoint/engine.h"
#include "parallel/hybrid/shared_gradients.h"

namespace train {
namespace {

namespace lib = tutti::libtorch;
namespace parallel = tutti::parallel;

parallel::AdamW adamw(const Options& options) {
  return parallel::AdamW({.learning_rate = options.rate, .weight_decay = options.decay});
}

/// The parameters that tensor-parallel ranks have copies of, and the work to keep the copies equal.
class Copies {
 public:
  Copies(const Options& options, Ranks& ranks, const GroupRanks& of_group,
         const std::vector<std::shared_ptr<Layer>>& layers)
      : axes_(of_group.parts),
        shared_({.tensor = options.tp > 1 ? &ranks.tensor() : nullptr, .ends = of_group.ends},
                declared(options, layers)) {
    for (const auto& layer : layers) {
      for (const lib::NamedTensor& p : lib::trained_parameters(*layer)) {
        if (layer->tied.defined() && p.tensor.is_same(layer->tied)) tied_.push_back(all_.size());
        all_.push_back(p.tensor);
      }
    }
  }
  lib::Treatment treatment(const lib::NamedTensor& parameter) const {
    const auto found =
        std::ranges::find_if(all_, [&](const Tensor& t) { return t.is_same(parameter.tensor); });
    return {.weight_decay = parameter.tensor.dim() > 1 ? 1.0 : 0.0,
            .in_norm = in_norm(static_cast<std::size_t>(found - all_.begin()))};
  }
  using Runs = std::vector<parallel::SharedGradients::Run>;
  void reduce(const Runs& gradients) {
    shared_.reduce(gradients);
    if (tied_.size() < 2) return;
    // Both ends are here.
    const auto &first = gradients[tied_[0]], &second = gradients[tied_[1]];
    void* const sums[] = {first.data, second.data};
    tutti::combine(first.type, tutti::ReduceKind::sum, sums,
                   std::vector<tutti::Source>{{.data = first.data}, {.data = second.data}},
                   first.count);
  }
  double norm(Runs gradients) const {
    if (tied_.size() == 2) gradients[tied_[1]].count = 0;
    return shared_.norm(gradients, axes_);
  }
  std::span<parallel::Axis* const> axes() const { return axes_; }

 private:
  bool in_norm(std::size_t i) const {
    return shared_.in_norm(i) && !(tied_.size() == 2 && i == tied_[1]);
  }
  static std::vector<parallel::SharedParameter> declared(
      const Options& options, const std::vector<std::shared_ptr<Layer>>& layers) {
    std::vector<parallel::SharedParameter> result;
    for (const auto& layer : layers) {
      for (const lib::NamedTensor& p : lib::trained_parameters(*layer)) {
        auto copies = options.sequence ? parallel::Copies::partial : parallel::Copies::equal;
        if (options.tp == 1 || layer->is_part(p.tensor)) copies = parallel::Copies::none;
        const bool tied = layer->tied.defined() && p.tensor.is_same(layer->tied);
        result.push_back({.name = tied ? "the tokens' matrix" : layer->name() + "." + p.name,
                          .copies = copies,
                          .tied = tied});
      }
    }
    return result;
  }
  const std::vector<parallel::Axis*> axes_;
  parallel::SharedGradients shared_;
  std::vector<Tensor> all_;
  std::vector<std::size_t> tied_;  // of this rank
};

/// The parameters' names in a checkpoint, and where they are in their wholes.
parallel::ParameterPlace place_of(const Layer& layer, const lib::NamedTensor& parameter,
                                  Ranks& ranks) {
  parallel::ParameterPlace place = layer.place(parameter.tensor);
  place.name = layer.name() + "." + (place.name.empty() ? parameter.name : place.name);
  // Of tensor-parallel ranks with copies, the first one saves them.
  place.is_copy = place.extent.empty() && ranks.tensor().rank() > 0;
  return place;
}

/// As one module, to be walked for its parameters.
struct All final : torch::nn::Module {
  explicit All(const std::vector<std::shared_ptr<Layer>>& layers) {
    for (const auto& layer : layers) register_module(layer->name(), layer);
  }
};

class Whole final : public Group {
 public:
  Whole(const Options& options, Ranks& ranks, const GroupRanks& of_group,
        const std::vector<std::shared_ptr<Layer>>& layers)
      : all_(layers),
        copies_(options, ranks, of_group, layers),
        parameters_(lib::trained_parameters(all_)),
        optimizer_(parameters_, [&](const auto& p) { return copies_.treatment(p); }),
        data_(of_group.data),
        adamw_(adamw(options)),
        pipeline_(options.pp > 1) {
    for (const auto& layer : layers) {
      for (const auto& p : lib::trained_parameters(*layer)) {
        places_.push_back(place_of(*layer, p, ranks));
      }
    }
    // A stage may have no experts; the others' norm is of all stages.
    if (!options.alone && !parameters_.empty()) averages_.emplace(data_, all_);
  }
  Tensor forward(std::size_t, const lib::Layer& body, const Tensor& input) override {
    return body(input);
  }
  // In a pipeline, layers have their last backward at different times: averages
  // come at the end.
  void begin_backward(bool last) override {
    if (averages_ && (!last || pipeline_)) no_sync_.emplace(averages_->engine());
  }
  void end_backward() override {
    if (averages_) averages_->finish();
    no_sync_.reset();
  }
  void make_later(const std::vector<std::size_t>&, bool last,
                  const std::function<void()>& make) override {
    begin_backward(last);
    make();
    end_backward();
  }
  void finish() override {
    if (averages_ && pipeline_) averages_->finish();
    runs_.clear();
    for (const lib::NamedTensor& p : parameters_) {
      runs_.push_back({p.tensor.grad().mutable_data_ptr(),
                       static_cast<std::size_t>(p.tensor.numel()),
                       lib::data_type(p.tensor.scalar_type(), p.name)});
    }
    copies_.reduce(runs_);
  }
  double norm() override { return copies_.norm(runs_); }
  void update(double clip, double norm) override {
    if (clip > 0) optimizer_.clip_gradients(clip, norm);
    optimizer_.step(adamw_);
    optimizer_.zero_grad();
  }
  void read(const std::function<void(const lib::NamedTensor&)>& read) override {
    for (const lib::NamedTensor& p : parameters_) read(p);
  }
  // Each of the data-parallel ranks, which all have everything, saves a run of every tensor.
  std::vector<parallel::TensorPart> saved() override {
    std::vector<parallel::TensorPart> parts = all_parts(true);
    const auto ranks = static_cast<std::size_t>(data_.size());
    const auto rank = static_cast<std::size_t>(data_.rank());
    for (parallel::TensorPart& p : parts) {
      const std::size_t begin = p.count * rank / ranks, end = p.count * (rank + 1) / ranks;
      p.data = static_cast<std::byte*>(p.data) + begin * tutti::size_of(p.type);
      p.begin = begin;
      p.count = end - begin;
    }
    return parts;
  }
  std::vector<parallel::TensorPart> wanted() override { return all_parts(false); }
  void loaded() override {
    std::size_t i = 0;
    optimizer_.load(adamw_, [&](lib::ParameterState& state) {
      state = states_[i];
      state.steps = steps_[i++];
    });
  }

 private:
  /// Of the state as it is now; to be saved, without copies of what other ranks save.
  std::vector<parallel::TensorPart> all_parts(bool saves) {
    states_.clear();
    optimizer_.prepare(adamw_);
    optimizer_.save([&](const lib::ParameterState& state) { states_.push_back(state); });
    steps_.clear();
    for (const lib::ParameterState& state : states_) steps_.push_back(state.steps);
    std::vector<parallel::TensorPart> parts;
    for (std::size_t i = 0; i < states_.size(); ++i) {
      if (saves && places_[i].is_copy) continue;
      const lib::ParameterState& state = states_[i];
      std::vector<void*> data;
      for (const Tensor& tensor : state.state) data.push_back(tensor.mutable_data_ptr());
      const auto more = parallel::state_parts(
          places_[i], lib::data_type(state.value.scalar_type(), places_[i].name), 0,
          static_cast<std::size_t>(state.value.numel()), state.value.mutable_data_ptr(), data);
      parts.insert(parts.end(), more.begin(), more.end());
      if (saves && !places_[i].has_first()) continue;
      parts.push_back(parallel::steps_part(places_[i], &steps_[i]));
    }
    return parts;
  }

  All all_;
  Copies copies_;
  const std::vector<lib::NamedTensor> parameters_;
  lib::LocalOptimizer optimizer_;
  parallel::Axis& data_;
  const parallel::AdamW adamw_;
  Copies::Runs runs_;  // the gradients of the present step
  std::vector<parallel::ParameterPlace> places_;
  std::vector<lib::ParameterState> states_;  // of the newest parts
  std::vector<std::uint64_t> steps_;
  const bool pipeline_;
  std::optional<lib::DataParallel> averages_;
  std::optional<parallel::DataParallel::NoSync> no_sync_;
};

parallel::Policy policy_of(const Options& options) {
  const auto precision = parallel::Precision::of(lib::data_type(options.shape.type, "the model"));
  parallel::Policy policy = parallel::Policy::fsdp(precision);
  if (options.shard == Sharding::zero1) policy = parallel::Policy::zero1(precision);
  if (options.shard == Sharding::zero2) policy = parallel::Policy::zero2(precision);
  if (options.shard == Sharding::zero3) policy = parallel::Policy::zero3(precision);
  // Ranks have the same rows of matrices that are tied, whatever else is in their units.
  if (options.shape.tied) policy.layout = parallel::Layout::by_parameter;
  return policy;
}

class Shards final : public Group {
 public:
  Shards(const Options& options, Ranks& ranks, const GroupRanks& of_group,
         std::vector<std::shared_ptr<Layer>> layers)
      : layers_(std::move(layers)),
        copies_(options, ranks, of_group, layers_),
        shards_({.shard = &of_group.shard,
                 .replicate = options.replicas > 1 ? &of_group.replicate : nullptr},
                units(), policy_of(options), [&](const auto& p) { return copies_.treatment(p); }),
        ranks_(ranks),
        adamw_(adamw(options)) {}
  Tensor forward(std::size_t layer, const lib::Layer& body, const Tensor& input) override {
    return shards_.forward(layer, body, input);
  }
  void begin_backward(bool last) override { shards_.synchronise(last); }
  void end_backward() override { shards_.end_backward(); }
  void make_later(const std::vector<std::size_t>& layers, bool last,
                  const std::function<void()>& make) override {
    shards_.synchronise(last);
    shards_.make_later(layers, make);
  }
  void finish() override {
    shards_.synchronise(true);
    shards_.finish();
    auto& engine = shards_.engine();
    std::vector<parallel::SharedGradients::Run> runs;
    for (std::size_t u = 0; u < engine.units(); ++u) {
      for (std::size_t p = 0; p < engine.unit(u).parameters.size(); ++p) {
        const auto shard = engine.shard({u, p});
        runs.push_back({shard.gradient, shard.count, engine.policy().precision.reduce});
      }
    }
    copies_.reduce(runs);
  }
  double norm() override { return shards_.engine().gradient_norm(copies_.axes()); }
  void update(double clip, double norm) override {
    if (clip > 0) shards_.engine().clip_gradients(clip, norm);
    shards_.engine().step(adamw_);
  }
  void read(const std::function<void(const lib::NamedTensor&)>& read) override {
    shards_.read_parameters(read);
  }
  std::vector<parallel::TensorPart> saved() override { return state().saved(); }
  std::vector<parallel::TensorPart> wanted() override { return state().wanted(); }
  void loaded() override { state().loaded(); }

 private:
  parallel::EngineState& state() {
    if (!state_) {
      state_.emplace(shards_.engine(), adamw_, [this](parallel::ParameterId id) {
        const Layer& layer = *layers_[id.unit];
        return place_of(layer, lib::trained_parameters(layer)[id.parameter], ranks_);
      });
    }
    return *state_;
  }

  std::vector<lib::FullyShard::Unit> units() const {
    std::vector<lib::FullyShard::Unit> result;
    for (const auto& layer : layers_) {
      lib::FullyShard::Unit& unit = result.emplace_back();
      unit.name = layer->name();
      unit.module = layer.get();
    }
    // Its backward comes next. (A rank may have no layers.)
    if (!result.empty()) result.back().reshard = parallel::Reshard::no;
    return result;
  }
  const std::vector<std::shared_ptr<Layer>> layers_;
  Copies copies_;
  lib::FullyShard shards_;
  Ranks& ranks_;
  const parallel::AdamW adamw_;
  std::optional<parallel::EngineState> state_;
};

}  // namespace

std::unique_ptr<Group> make_group(const Options& options, Ranks& ranks, const GroupRanks& of_group,
                                  std::vector<std::shared_ptr<Layer>> layers) {
  if (options.shard == Sharding::none) {
    return std::make_unique<Whole>(options, ranks, of_group, layers);
  }
  return std::make_unique<Shards>(options, ranks, of_group, std::move(layers));
}

}  // namespace train
