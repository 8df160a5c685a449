#include "tests/parallel/sharded_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

namespace tutti::test {

using namespace parallel;

namespace {

constexpr AdamW::Options kAdamW{.learning_rate = 0.01, .weight_decay = 0.1};
constexpr Sgd::Options kSgd{
    .learning_rate = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true};

double wave(double x) { return std::sin(x) * std::cos(0.37 * x + 1); }

}  // namespace

std::vector<Unit> Mlp::units() const {
  std::vector<Unit> units;
  for (std::size_t l = 0; l < layers(); ++l) {
    units.push_back(
        {.name = "layer" + std::to_string(l),
         .parameters = {{.name = "weight", .count = out(l) * in(l), .rows = out(l)},
                        {.name = "empty", .count = 0, .rows = 0},
                        {.name = "bias", .count = out(l), .rows = out(l), .weight_decay = 0}}});
  }
  return units;
}

std::vector<double> Mlp::weight(std::size_t layer) const {
  std::vector<double> w(out(layer) * in(layer));
  const double scale = 1 / std::sqrt(static_cast<double>(in(layer)));
  for (std::size_t i = 0; i < w.size(); ++i) {
    w[i] = scale * wave(static_cast<double>(i * 7 + layer * 1001 + 1));
  }
  return w;
}

std::vector<double> Mlp::bias(std::size_t layer) const {
  std::vector<double> b(out(layer));
  for (std::size_t i = 0; i < b.size(); ++i) b[i] = 0.1 * wave(static_cast<double>(i + 31 * layer));
  return b;
}

void Mlp::forward(std::size_t layer, const double* w, const double* b, const std::vector<double>& x,
                  std::vector<double>& y) const {
  const std::size_t n = in(layer);
  y.assign(out(layer), 0);
  for (std::size_t o = 0; o < y.size(); ++o) {
    double sum = b[o];
    for (std::size_t i = 0; i < n; ++i) sum += w[o * n + i] * x[i];
    y[o] = layer + 1 < layers() ? std::tanh(sum) : sum;
  }
}

void Mlp::backward(std::size_t layer, const double* w, const std::vector<double>& x,
                   const std::vector<double>& y, std::vector<double>& dy, double* gw,
                   double* gb) const {
  const std::size_t n = in(layer);
  std::vector<double> dx(n);
  for (std::size_t o = 0; o < y.size(); ++o) {
    const double d = layer + 1 < layers() ? dy[o] * (1 - y[o] * y[o]) : dy[o];
    gb[o] += d;
    for (std::size_t i = 0; i < n; ++i) {
      gw[o * n + i] += d * x[i];
      dx[i] += d * w[o * n + i];
    }
  }
  dy = std::move(dx);
}

std::vector<double> sample_input(std::size_t step, std::size_t sample, std::size_t width) {
  std::vector<double> x(width);
  for (std::size_t i = 0; i < width; ++i) {
    x[i] = wave(static_cast<double>(step * 977 + sample * 13 + i * 3) * 0.1);
  }
  return x;
}

std::vector<double> sample_target(std::size_t step, std::size_t sample, std::size_t width) {
  std::vector<double> t(width);
  for (std::size_t i = 0; i < width; ++i) {
    t[i] = wave(static_cast<double>(step * 31 + sample * 5 + i) * 0.2 + 2);
  }
  return t;
}

ShardedMesh::ShardedMesh(Communicator& comm, int replicas, int group) {
  const int shards = comm.size() / replicas;
  shards_ = comm.split(comm.rank() / shards, comm.rank());
  shard_.emplace(shards_);
  if (replicas > 1) {
    replicas_ = comm.split(comm.rank() % shards, comm.rank());
    replicate_.emplace(replicas_);
  }
  if (group > 0) {
    groups_ = comm.split(comm.rank() / group, comm.rank());
    group_.emplace(groups_);
  }
}

ShardedAxes ShardedMesh::axes() {
  return {.shard = &*shard_, .replicate = replicate(), .group = group()};
}

namespace {

/// Activations of a micro-batch: of layer l, sample by sample.
using Activations = std::vector<std::vector<std::vector<double>>>;

class ShardedTrainer {
 public:
  ShardedTrainer(ShardedDataParallel& model, const Mlp& mlp) : model_(model), mlp_(mlp) {}

  void forward(std::size_t step, std::size_t first, std::size_t count) {
    activations_.assign(mlp_.layers() + 1, {});
    activations_[0].resize(count);
    for (std::size_t s = 0; s < count; ++s) {
      activations_[0][s] = sample_input(step, first + s, mlp_.in(0));
    }
    for (std::size_t l = 0; l < mlp_.layers(); ++l) {
      model_.before_forward(l);
      activations_[l + 1].resize(count);
      for (std::size_t s = 0; s < count; ++s) {
        mlp_.forward(l, parameter(l, 0), parameter(l, 2), activations_[l][s],
                     activations_[l + 1][s]);
      }
      model_.after_forward(l);
    }
  }

  /// `weight`: of each sample in the loss.
  void backward(std::size_t step, std::size_t first, double weight) {
    auto gradients = activations_.back();
    for (std::size_t s = 0; s < gradients.size(); ++s) {
      const auto target = sample_target(step, first + s, gradients[s].size());
      for (std::size_t i = 0; i < target.size(); ++i) {
        gradients[s][i] = (gradients[s][i] - target[i]) * weight;
      }
    }
    for (std::size_t l = mlp_.layers(); l-- > 0;) {
      model_.before_backward(l);
      for (std::size_t s = 0; s < gradients.size(); ++s) {
        mlp_.backward(l, parameter(l, 0), activations_[l][s], activations_[l + 1][s], gradients[s],
                      gradient(l, 0), gradient(l, 2));
      }
      model_.after_backward(l);
    }
  }

  std::vector<double> all_parameters() {
    std::vector<double> all;
    for (std::size_t l = 0; l < mlp_.layers(); ++l) {
      model_.before_forward(l);
      all.insert(all.end(), parameter(l, 0), parameter(l, 0) + mlp_.in(l)*mlp_.out(l));
      all.insert(all.end(), parameter(l, 2), parameter(l, 2) + mlp_.out(l));
      model_.after_forward(l);
    }
    return all;
  }

 private:
  const double* parameter(std::size_t layer, std::size_t p) const {
    return static_cast<const double*>(model_.parameter({layer, p}));
  }
  double* gradient(std::size_t layer, std::size_t p) const {
    return static_cast<double*>(model_.gradient({layer, p}));
  }

  ShardedDataParallel& model_;
  const Mlp& mlp_;
  Activations activations_;
};

}  // namespace

Trained train_sharded(Communicator& comm, const Mlp& mlp, const ShardedCase& c) {
  ShardedMesh mesh(comm, c.replicas, c.group);
  ShardedDataParallel model(mlp.units(), c.policy, mesh.axes());
  for (std::size_t l = 0; l < mlp.layers(); ++l) {
    model.load({l, 0}, mlp.weight(l).data());
    model.load({l, 2}, mlp.bias(l).data());
  }
  model.share_parameters();
  const AdamW adamw(kAdamW);
  const Sgd sgd(kSgd);
  ShardedTrainer trainer(model, mlp);
  Trained result;
  const std::size_t mine = kBatch / static_cast<std::size_t>(comm.size());
  const std::size_t first = mine * static_cast<std::size_t>(comm.rank());
  // Each rank's part, divided by whatever the policy divides by, is to be the mean over the batch.
  const double divided = c.policy.divide_by == 0 ? comm.size() : c.policy.divide_by;
  const double weight = divided / static_cast<double>(kBatch);
  for (std::size_t step = 0; step < c.steps; ++step) {
    const std::size_t count = mine / c.micro_batches;
    for (std::size_t m = 0; m < c.micro_batches; ++m) {
      model.synchronise(c.reduce_each || m + 1 == c.micro_batches);
      trainer.forward(step, first + m * count, count);
      trainer.backward(step, first + m * count, weight);
    }
    model.finish_backward();
    result.norms.push_back(model.clip_gradients(kMostNorm));
    if (c.momentum) {
      model.step(sgd);
    } else {
      model.step(adamw);
    }
    if (c.after_step) c.after_step(step);
    if (c.evaluates) trainer.forward(step, 0, 1);
  }
  result.parameters = trainer.all_parameters();
  return result;
}

Trained train_alone(const Mlp& mlp, std::size_t steps, bool momentum) {
  struct Tensor {
    std::vector<double> value, gradient, m, v;
    double decay;
  };
  std::vector<Tensor> tensors;
  for (std::size_t l = 0; l < mlp.layers(); ++l) {
    tensors.push_back({mlp.weight(l), {}, {}, {}, 1});
    tensors.push_back({mlp.bias(l), {}, {}, {}, 0});
  }
  for (Tensor& t : tensors) {
    t.m.resize(t.value.size());
    t.v.resize(t.value.size());
  }
  Trained result;
  for (std::size_t step = 0; step < steps; ++step) {
    for (Tensor& t : tensors) t.gradient.assign(t.value.size(), 0);
    for (std::size_t s = 0; s < kBatch; ++s) {
      std::vector<std::vector<double>> x{sample_input(step, s, mlp.in(0))};
      for (std::size_t l = 0; l < mlp.layers(); ++l) {
        mlp.forward(l, tensors[2 * l].value.data(), tensors[2 * l + 1].value.data(), x[l],
                    x.emplace_back());
      }
      std::vector<double> d = x.back();
      const auto target = sample_target(step, s, d.size());
      for (std::size_t i = 0; i < d.size(); ++i) d[i] = (d[i] - target[i]) / kBatch;
      for (std::size_t l = mlp.layers(); l-- > 0;) {
        mlp.backward(l, tensors[2 * l].value.data(), x[l], x[l + 1], d,
                     tensors[2 * l].gradient.data(), tensors[2 * l + 1].gradient.data());
      }
    }
    double squares = 0;
    for (const Tensor& t : tensors) {
      for (const double g : t.gradient) squares += g * g;
    }
    const double norm = std::sqrt(squares), scale = norm > kMostNorm ? kMostNorm / norm : 1;
    result.norms.push_back(norm);
    const double n = static_cast<double>(step + 1);
    for (Tensor& t : tensors) {
      for (std::size_t i = 0; i < t.value.size(); ++i) {
        double& p = t.value[i];
        double g = t.gradient[i] * scale;
        if (momentum) {
          g += kSgd.weight_decay * t.decay * p;
          t.m[i] = kSgd.momentum * t.m[i] + g;
          p -= kSgd.learning_rate * (g + kSgd.momentum * t.m[i]);
        } else {
          p -= kAdamW.learning_rate * kAdamW.weight_decay * t.decay * p;
          t.m[i] = kAdamW.beta1 * t.m[i] + (1 - kAdamW.beta1) * g;
          t.v[i] = kAdamW.beta2 * t.v[i] + (1 - kAdamW.beta2) * g * g;
          const double m = t.m[i] / (1 - std::pow(kAdamW.beta1, n));
          const double v = t.v[i] / (1 - std::pow(kAdamW.beta2, n));
          p -= kAdamW.learning_rate * m / (std::sqrt(v) + kAdamW.epsilon);
        }
      }
    }
  }
  for (const Tensor& t : tensors) {
    result.parameters.insert(result.parameters.end(), t.value.begin(), t.value.end());
  }
  return result;
}

double difference(const std::vector<double>& got, const std::vector<double>& expected) {
  if (got.size() != expected.size()) return HUGE_VAL;
  double largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double d = std::abs(got[i] - expected[i]) / std::max(std::abs(expected[i]), 0.01);
    if (!(d <= largest)) largest = d;
  }
  return largest;
}

}  // namespace tutti::test
