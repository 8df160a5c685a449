#include "tests/parallel/hybrid_parameters.h"

#include <cmath>
#include <utility>

#include "parallel/data_parallel/data_parallel.h"
#include "parallel/sharded/sharded.h"
#include "tests/parallel/hybrid_model_math.h"

namespace tutti::test {

using namespace parallel;

namespace {

constexpr DataType kParameterType = DataType::float64;

std::vector<SharedParameter> shared_of(const std::vector<HeldUnit>& units) {
  std::vector<SharedParameter> all;
  for (const HeldUnit& u : units) {
    for (const HeldParameter& p : u.parameters) all.push_back(p.shared);
  }
  return all;
}

/// ZeRO-1, 2, 3: the data axis has shards.
class Sharded final : public HybridParameters {
 public:
  Sharded(const HybridCase& c, const std::vector<HeldUnit>& units, Axis& data,
          const SharedAxes& shared_axes, std::vector<Axis*> norm_axes)
      : shared_(shared_axes, shared_of(units)),
        norm_axes_(std::move(norm_axes)),
        model_(declared(units), policy(c), {.shard = &data}) {
    for (std::size_t u = 0; u < units.size(); ++u) {
      for (std::size_t p = 0; p < units[u].parameters.size(); ++p) {
        model_.load({u, p}, units[u].parameters[p].start.data());
      }
    }
    shared_.begin(runs([](const auto& shard) { return shard.master; }));
    model_.share_parameters();
  }
  void before(std::size_t unit, bool backward) override {
    if (backward) {
      model_.before_backward(unit);
    } else {
      model_.before_forward(unit);
    }
  }
  void after(std::size_t unit, bool backward, bool last) override {
    if (!backward) return model_.after_forward(unit);
    model_.synchronise(last);
    model_.after_backward(unit);
  }
  const double* value(std::size_t unit, std::size_t parameter) override {
    return static_cast<const double*>(model_.parameter({unit, parameter}));
  }
  double* gradient(std::size_t unit, std::size_t parameter) override {
    return static_cast<double*>(model_.gradient({unit, parameter}));
  }
  double end_step() override {
    model_.synchronise(true);
    model_.finish_backward();
    shared_.reduce(runs([](const auto& shard) { return shard.gradient; }));
    const double norm = model_.clip_gradients(kHybridMostNorm, norm_axes_);
    std::isfinite(norm) ? model_.step(AdamW(kHybridAdamW)) : model_.discard_gradients();
    return norm;
  }

 private:
  std::vector<Unit> declared(const std::vector<HeldUnit>& units) const {
    std::vector<Unit> all;
    std::size_t i = 0;
    for (const HeldUnit& u : units) {
      Unit& unit = all.emplace_back(Unit{.name = u.name, .parameters = {}});
      for (const HeldParameter& p : u.parameters) {
        const std::size_t count = p.start.values.size();
        unit.parameters.push_back({.name = p.shared.name,
                                   .count = count,
                                   .rows = p.start.rows == 1 ? count : p.start.rows,
                                   .weight_decay = p.decay,
                                   .in_norm = shared_.in_norm(i++)});
      }
    }
    return all;
  }
  static Policy policy(const HybridCase& c) {
    Policy policy = c.zero == 1   ? Policy::zero1(Precision::of(kParameterType))
                    : c.zero == 2 ? Policy::zero2(Precision::of(kParameterType))
                                  : Policy::zero3(Precision::of(kParameterType));
    policy.layout = c.layout;
    return policy;
  }
  template <class Of>
  std::vector<SharedGradients::Run> runs(const Of& of) const {
    std::vector<SharedGradients::Run> all;
    for (std::size_t u = 0; u < model_.units(); ++u) {
      for (std::size_t p = 0; p < model_.unit(u).parameters.size(); ++p) {
        const auto shard = model_.shard({u, p});
        all.push_back({of(shard), shard.count, kParameterType, shard.begin});
      }
    }
    return all;
  }

  SharedGradients shared_;
  std::vector<Axis*> norm_axes_;
  ShardedDataParallel model_;
};

/// The data axis has replicas.
class Replicated final : public HybridParameters {
 public:
  Replicated(const std::vector<HeldUnit>& units, Axis& data, const SharedAxes& shared_axes,
             std::vector<Axis*> norm_axes)
      : shared_(shared_axes, shared_of(units)),
        norm_axes_(std::move(norm_axes)),
        engine_(data, declared(units), {.bucket_bytes = 1500, .first_bucket_bytes = 400}) {
    for (const HeldUnit& u : units) {
      first_.push_back(values_.size());
      for (const HeldParameter& p : u.parameters) {
        values_.push_back(p.start);
        moments_.emplace_back(2, Matrix(p.start.rows, p.start.columns));
        decay_.push_back(p.decay);
      }
    }
    first_.push_back(values_.size());
    std::vector<void*> pointers;
    for (Matrix& m : values_) pointers.push_back(m.data());
    engine_.broadcast_parameters(pointers);
    shared_.begin(runs([&](std::size_t i) { return values_[i].data(); }));
  }
  void begin_step() override { engine_.zero(); }
  void before(std::size_t, bool) override {}
  void after(std::size_t unit, bool backward, bool last) override {
    if (!backward || !last) return;
    for (std::size_t i = first_[unit]; i < first_[unit + 1]; ++i) engine_.ready(i);
  }
  const double* value(std::size_t unit, std::size_t parameter) override {
    return values_[first_[unit] + parameter].data();
  }
  double* gradient(std::size_t unit, std::size_t parameter) override {
    return static_cast<double*>(engine_.gradient(first_[unit] + parameter));
  }
  double end_step() override {
    (void)engine_.finish();
    const auto gradients = runs([&](std::size_t i) { return engine_.gradient(i); });
    shared_.reduce(gradients);
    const double norm = shared_.norm(gradients, norm_axes_);
    if (!std::isfinite(norm)) return norm;
    ++steps_;
    const AdamW adamw(kHybridAdamW);
    for (std::size_t i = 0; i < values_.size(); ++i) {
      adamw.update({.type = kParameterType,
                    .master = values_[i].data(),
                    .state = {moments_[i][0].data(), moments_[i][1].data()},
                    .gradient_type = kParameterType,
                    .gradient = engine_.gradient(i),
                    .count = values_[i].values.size(),
                    .gradient_scale = norm > kHybridMostNorm ? kHybridMostNorm / norm : 1,
                    .decay_scale = decay_[i],
                    .step = steps_});
    }
    return norm;
  }

 private:
  static std::vector<parallel::Parameter> declared(const std::vector<HeldUnit>& units) {
    std::vector<parallel::Parameter> all;
    for (const HeldUnit& u : units) {
      for (const HeldParameter& p : u.parameters) {
        all.push_back({p.shared.name, {p.start.rows, p.start.columns}, kParameterType});
      }
    }
    return all;
  }
  template <class Of>
  std::vector<SharedGradients::Run> runs(const Of& of) {
    std::vector<SharedGradients::Run> all;
    for (std::size_t i = 0; i < values_.size(); ++i) {
      all.push_back({of(i), values_[i].values.size(), kParameterType});
    }
    return all;
  }

  SharedGradients shared_;
  std::vector<Axis*> norm_axes_;
  DataParallel engine_;
  std::vector<std::size_t> first_;  // by unit: its first parameter
  std::vector<Matrix> values_;
  std::vector<std::vector<Matrix>> moments_;
  std::vector<double> decay_;
  std::uint64_t steps_ = 0;
};

}  // namespace

std::unique_ptr<HybridParameters> make_parameters(const HybridCase& c,
                                                  const std::vector<HeldUnit>& units, Axis& data,
                                                  const SharedAxes& shared_axes,
                                                  std::vector<Axis*> norm_axes) {
  if (c.zero == 0) {
    return std::make_unique<Replicated>(units, data, shared_axes, std::move(norm_axes));
  }
  return std::make_unique<Sharded>(c, units, data, shared_axes, std::move(norm_axes));
}

}  // namespace tutti::test
