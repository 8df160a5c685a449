// All parameters of a rank, in one group or two.
#include <cmath>
#include <optional>

#include "examples/train/parameter_groups.h"

namespace train {
namespace {

namespace lib = tutti::libtorch;

class Groups final : public Parameters {
 public:
  Groups(const Options& options, Ranks& ranks, Ranks::Axis* ends,
         std::vector<std::shared_ptr<Layer>> layers) {
    std::vector<std::shared_ptr<Layer>> experts;
    for (const auto& layer : layers) {
      experts_.emplace_back();
      if (layer->experts == nullptr) continue;
      experts_.back() = experts.size();
      experts.push_back(layer->experts);
    }
    groups_.push_back(make_group(
        options, ranks, {ranks.data(), ranks.shard(), ranks.replicate(), ranks.of_model(), ends},
        layers));
    if (options.ep > 1) {
      std::vector<Ranks::Axis*> parts = ranks.of_model();
      parts.push_back(&ranks.experts());
      groups_.push_back(make_group(
          options, ranks,
          {ranks.same_experts(), ranks.experts_shard(), ranks.replicate(), parts, nullptr},
          std::move(experts)));
    }
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const auto& layer = layers[i];
      if (const auto e = experts_[i]) {
        layer->around_experts = [this, e = *e](const lib::Layer& body, const Tensor& x) {
          return groups_[1]->forward(e, body, x);
        };
      }
      const lib::Layer body = [layer](const Tensor& x) { return layer->forward(x); };
      functions_.push_back(options.recompute ? lib::Layer([body](const Tensor& x) {
        return lib::checkpoint(body, x);
      })
                                             : body);
    }
  }
  Tensor forward(std::size_t layer, const Tensor& input) override {
    return groups_[0]->forward(layer, functions_[layer], input);
  }
  void begin_backward(bool last) override {
    for (const auto& group : groups_) group->begin_backward(last);
  }
  void end_backward() override {
    for (const auto& group : groups_) group->end_backward();
  }
  void make_later(const std::vector<std::size_t>& layers, bool last,
                  const std::function<void()>& make) override {
    if (groups_.size() == 1) return groups_[0]->make_later(layers, last, make);
    std::vector<std::size_t> with_experts;
    for (const std::size_t layer : layers) {
      if (experts_[layer]) with_experts.push_back(*experts_[layer]);
    }
    groups_[0]->make_later(layers, last, [&] { groups_[1]->make_later(with_experts, last, make); });
  }
  double step(double clip) override {
    for (const auto& group : groups_) group->finish();
    double norm = 0;
    for (const auto& group : groups_) {
      if (clip > 0) norm = std::hypot(norm, group->norm());
    }
    for (const auto& group : groups_) group->update(clip, norm);
    return norm;
  }
  void read(const std::function<void(const lib::NamedTensor&)>& read) override {
    for (const auto& group : groups_) group->read(read);
  }
  std::vector<tutti::parallel::TensorPart> saved() override {
    return of_all([](Group& group) { return group.saved(); });
  }
  std::vector<tutti::parallel::TensorPart> wanted() override {
    return of_all([](Group& group) { return group.wanted(); });
  }
  void loaded() override {
    for (const auto& group : groups_) group->loaded();
  }

 private:
  template <class Parts>
  std::vector<tutti::parallel::TensorPart> of_all(const Parts& parts) {
    std::vector<tutti::parallel::TensorPart> all;
    for (const auto& group : groups_) {
      auto own = parts(*group);
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }

  std::vector<std::unique_ptr<Group>> groups_;       // all, or all but experts, and experts
  std::vector<std::optional<std::size_t>> experts_;  // by layer: its number in the second
  std::vector<lib::Layer> functions_;
};

}  // namespace

std::unique_ptr<Parameters> make_parameters(const Options& options, Ranks& ranks, Ranks::Axis* ends,
                                            std::vector<std::shared_ptr<Layer>> layers) {
  return std::make_unique<Groups>(options, ranks, ends, std::move(layers));
}

}  // namespace train
