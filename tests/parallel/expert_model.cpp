#include "tests/parallel/expert_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>

#include "parallel/data_parallel/data_parallel.h"
#include "parallel/expert/expert_parallel.h"
#include "parallel/mesh.h"
#include "parallel/sharded/sharded.h"

namespace tutti::test {
namespace {

using namespace parallel;

constexpr double kRate = 0.2;
constexpr std::size_t kDense = 3;  // R, b, D stand before the experts

Matrix tokens_of(std::size_t step) { return {kMoeTokens, kMoeWidth, 0.3 + double(step)}; }
Matrix targets_of(std::size_t step) { return {kMoeTokens, kMoeWidth, 40.7 + double(step)}; }

MoeParameters begin(const MoeCase& c) {
  MoeParameters p{{kMoeWidth, kMoeExperts, 11}, {1, kMoeExperts, 12}, {kMoeWidth, kMoeWidth, 13}};
  for (std::size_t e = 0; e < kMoeExperts; ++e) {
    p.emplace_back(kMoeWidth, kMoeWidth, 20 + double(e));
  }
  p[1](0, 0) += c.favour;
  return p;
}

MoeParameters zeros_like(const MoeParameters& p) {
  MoeParameters z;
  for (const Matrix& m : p) z.emplace_back(m.rows, m.columns);
  return z;
}

void add(Matrix& to, const Matrix& m, double factor = 1) {
  for (std::size_t i = 0; i < to.values.size(); ++i) to.values[i] += factor * m.values[i];
}

double tanh_of(double v) { return std::tanh(v); }
double slope_of(double y) { return 1 - y * y; }  // of tanh, by its result

/// What one rank does for a token, with plain loops.
struct Choice {
  std::size_t expert = 0;
  double weight = 0;
  bool taken = true;
};

}  // namespace

MoeParameters train_moe_alone(const MoeCase& c, std::size_t ranks) {
  MoeParameters p = begin(c);
  const std::size_t share = kMoeTokens / ranks;
  for (std::size_t step = 0; step < kMoeSteps; ++step) {
    const Matrix x = tokens_of(step), target = targets_of(step);
    Matrix probability = plus_rows(x * p[0], p[1]);
    std::vector<std::vector<Choice>> chosen(kMoeTokens);
    std::vector<double> count(kMoeExperts), mean(kMoeExperts);
    for (std::size_t t = 0; t < kMoeTokens; ++t) {
      double sum = 0, largest = -1e300;
      for (std::size_t e = 0; e < kMoeExperts; ++e) largest = std::max(largest, probability(t, e));
      for (std::size_t e = 0; e < kMoeExperts; ++e) {
        sum += probability(t, e) = std::exp(probability(t, e) - largest);
      }
      for (std::size_t e = 0; e < kMoeExperts; ++e) {
        mean[e] += (probability(t, e) /= sum) / double(kMoeTokens);
      }
      std::vector<std::size_t> order(kMoeExperts);
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return probability(t, a) > probability(t, b);
      });
      double all = 0;
      for (std::size_t j = 0; j < c.top_k; ++j) all += probability(t, order[j]);
      for (std::size_t j = 0; j < c.top_k; ++j) {
        ++count[order[j]];
        chosen[t].push_back(
            {order[j], probability(t, order[j]) / (c.renormalizes ? all : 1), true});
      }
    }
    for (std::size_t r = 0; r < ranks && c.capacity_factor; ++r) {
      const double most = std::max(
          1.0, std::ceil(*c.capacity_factor * double(share * c.top_k) / double(kMoeExperts)));
      std::vector<double> rows(kMoeExperts);
      for (std::size_t j = 0; j < c.top_k; ++j) {
        for (std::size_t t = r * share; t < (r + 1) * share; ++t) {
          Choice& choice = chosen[t][j];
          choice.taken = rows[choice.expert] < most;
          rows[choice.expert] += choice.taken ? 1 : 0;
        }
      }
    }
    MoeParameters g = zeros_like(p);
    for (std::size_t t = 0; t < kMoeTokens; ++t) {
      const Matrix xt = x.part(t, 1);
      Matrix y = xt;
      for (const Choice& k : chosen[t]) {
        if (k.taken) add(y, each(xt * p[kDense + k.expert], tanh_of), k.weight);
      }
      Matrix dout = y * p[2];
      add(dout, target.part(t, 1), -1);
      dout = each(dout, [](double v) { return v / double(kMoeTokens); });
      add(g[2], transposed(y) * dout);
      const Matrix dy = dout * transposed(p[2]);
      std::vector<double> dweight, dp(kMoeExperts);
      for (const Choice& k : chosen[t]) {
        const Matrix r = each(xt * p[kDense + k.expert], tanh_of);
        dweight.push_back(0);
        if (!k.taken) continue;
        for (std::size_t i = 0; i < kMoeWidth; ++i) dweight.back() += dy(0, i) * r(0, i);
        Matrix d = times(dy, each(r, slope_of));
        add(g[kDense + k.expert], transposed(xt) * d, k.weight);
      }
      double all = 1, along = 0;
      if (c.renormalizes) {
        all = 0;
        for (std::size_t j = 0; j < c.top_k; ++j) {
          all += probability(t, chosen[t][j].expert);
          along += chosen[t][j].weight * dweight[j];
        }
      }
      for (std::size_t j = 0; j < c.top_k; ++j) {
        dp[chosen[t][j].expert] += (dweight[j] - along) / all;
      }
      double dot = 0;
      for (std::size_t e = 0; e < kMoeExperts; ++e) {
        dp[e] += c.balance * double(kMoeExperts) * count[e] / double(kMoeTokens * c.top_k) /
                 double(kMoeTokens);
        dot += dp[e] * probability(t, e);
      }
      Matrix dlogits(1, kMoeExperts);
      for (std::size_t e = 0; e < kMoeExperts; ++e)
        dlogits(0, e) = probability(t, e) * (dp[e] - dot);
      add(g[0], transposed(xt) * dlogits);
      add(g[1], dlogits);
    }
    for (std::size_t i = 0; i < p.size(); ++i) add(p[i], g[i], -kRate);
  }
  return p;
}

namespace {

/// Parameters that some engine reduces, each in its own way.
class Reduced {
 public:
  virtual ~Reduced() = default;
  /// Of the step that begins: where they are.
  virtual void fetch(std::span<Matrix> values) = 0;
  /// Their gradients' averages over all tokens are applied.
  virtual void update(std::span<const Matrix> gradients, std::span<Matrix> values) = 0;
};

/// A DataParallel engine averages over `axis`; null: nobody does. `scale` comes before that.
class Replicated final : public Reduced {
 public:
  Replicated(Axis* axis, std::span<const Matrix> values, double scale) : scale_(scale) {
    if (axis == nullptr) return;
    std::vector<Parameter> parameters;
    for (const Matrix& m : values) {
      parameters.push_back({"w", {m.rows, m.columns}, DataType::float64});
    }
    engine_.emplace(*axis, parameters);
  }
  void fetch(std::span<Matrix>) override {}
  void update(std::span<const Matrix> gradients, std::span<Matrix> values) override {
    for (std::size_t i = 0; i < values.size(); ++i) {
      Matrix g = each(gradients[i], [&](double v) { return v * scale_; });
      if (engine_) {
        std::memcpy(engine_->gradient(i), g.data(), g.values.size() * sizeof(double));
        engine_->ready(i);
      } else {
        add(values[i], g, -kRate);
      }
    }
    if (!engine_) return;
    (void)engine_->finish();
    for (std::size_t i = 0; i < values.size(); ++i) {
      Matrix g(values[i].rows, values[i].columns);
      std::memcpy(g.data(), engine_->gradient(i), g.values.size() * sizeof(double));
      add(values[i], g, -kRate);
    }
  }

 private:
  const double scale_;
  std::optional<DataParallel> engine_;
};

/// A ShardedDataParallel engine keeps them, and divides by `ranks`.
class Sharded final : public Reduced {
 public:
  Sharded(Axis& axis, std::span<const Matrix> values, unsigned ranks) {
    Unit unit{.name = "moe", .parameters = {}};
    for (const Matrix& m : values) {
      unit.parameters.push_back({.name = "w", .count = m.values.size(), .rows = m.rows});
    }
    Policy policy = Policy::zero3(Precision::of(DataType::float64));
    policy.divide_by = ranks;
    engine_.emplace(std::vector<Unit>{unit}, policy, ShardedAxes{.shard = &axis});
    for (std::size_t i = 0; i < values.size(); ++i) engine_->load({0, i}, values[i].data());
    engine_->share_parameters();
  }
  void fetch(std::span<Matrix> values) override {
    engine_->before_forward(0);
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::memcpy(values[i].data(), engine_->parameter({0, i}),
                  values[i].values.size() * sizeof(double));
    }
    engine_->after_forward(0);
  }
  void update(std::span<const Matrix> gradients, std::span<Matrix> values) override {
    engine_->before_backward(0);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      std::memcpy(engine_->gradient({0, i}), gradients[i].data(),
                  gradients[i].values.size() * sizeof(double));
    }
    engine_->after_backward(0);
    engine_->finish_backward();
    engine_->step(Sgd({.learning_rate = kRate}));
    fetch(values);
  }

 private:
  std::optional<ShardedDataParallel> engine_;
};

}  // namespace

MoeParameters train_moe(Communicator& world, const MoeCase& c) {
  const int ep_ranks = c.ep > 0 ? c.ep : world.size();
  // The ranks of "ep" share the experts, those of "edp" have the same ones.
  Mesh mesh(world, {{"edp", -1}, {"ep", ep_ranks}}, {{"edp", "ep"}});
  Axis& ep = mesh.axis("ep");
  Axis& edp = mesh.axis("edp");
  Axis& all = mesh.axis({"edp", "ep"});
  const auto ranks = static_cast<std::size_t>(world.size());
  const auto rank = static_cast<int>(mesh.rank());
  const std::size_t mine = kMoeTokens / ranks;

  expert::Router router("moe", {kMoeExperts, c.top_k, c.renormalizes});
  expert::ExpertParallel layer(ep,
                               {.name = "moe",
                                .experts = kMoeExperts,
                                .width = kMoeWidth,
                                .type = DataType::float64,
                                .top_k = c.top_k},
                               {.capacity_factor = c.capacity_factor, .overlap = c.overlap});
  const std::size_t first = kDense + layer.first_expert(), local = layer.local_experts();
  const MoeParameters whole = begin(c);
  MoeParameters dense(whole.begin(), whole.begin() + kDense);
  MoeParameters experts(whole.begin() + std::ptrdiff_t(first),
                        whole.begin() + std::ptrdiff_t(first + local));
  std::unique_ptr<Reduced> of_dense, of_experts;
  if (c.data == MoeCase::Data::sharded) {
    of_dense = std::make_unique<Sharded>(all, dense, unsigned(ranks));
    of_experts = std::make_unique<Sharded>(edp, experts, unsigned(ranks));
  } else {
    of_dense = std::make_unique<Replicated>(&all, dense, 1);
    Axis* const same_experts = c.data == MoeCase::Data::none ? nullptr : &edp;
    of_experts = std::make_unique<Replicated>(same_experts, experts, layer.gradient_scale());
  }

  expert::Routed routed;
  expert::Saved saved;
  for (std::size_t step = 0; step < kMoeSteps; ++step) {
    of_dense->fetch(dense);
    of_experts->fetch(experts);
    const Matrix x = tokens_of(step).slice(rank, int(ranks));
    const Matrix target = targets_of(step).slice(rank, int(ranks));
    const Matrix logits = plus_rows(x * dense[0], dense[1]);
    router.forward(logits.data(), mine, DataType::float64, routed);
    const expert::Balance balance = router.balance(all, routed);
    const auto matrix_at = [](const void* rows, std::size_t count) {
      Matrix m(count, kMoeWidth);
      std::memcpy(m.data(), rows, m.values.size() * sizeof(double));
      return m;
    };
    Matrix y(mine, kMoeWidth), dx(mine, kMoeWidth);
    layer.forward(
        x.data(), routed,
        [&](std::size_t e, const void* rows, std::size_t count, void* results) {
          const Matrix r = each(matrix_at(rows, count) * experts[e], tanh_of);
          std::memcpy(results, r.data(), r.values.size() * sizeof(double));
        },
        y.data(), saved);
    add(y, x);
    Matrix dout = y * dense[2];
    add(dout, target, -1);
    dout = each(dout, [&](double v) { return v / double(mine); });
    MoeParameters of_all = zeros_like(dense), of_mine = zeros_like(experts);
    add(of_all[2], transposed(y) * dout);
    const Matrix dy = dout * transposed(dense[2]);
    std::vector<double> dweights(mine * c.top_k);
    layer.backward(
        dy.data(),
        [&](std::size_t e, const void* rows, const void* dresults, std::size_t count, void* drows) {
          const Matrix in = matrix_at(rows, count);
          const Matrix r = each(in * experts[e], tanh_of);
          const Matrix d = times(matrix_at(dresults, count), each(r, slope_of));
          add(of_mine[e], transposed(in) * d);
          const Matrix back = d * transposed(experts[e]);
          std::memcpy(drows, back.data(), back.values.size() * sizeof(double));
        },
        saved, dx.data(), dweights);
    Matrix dlogits(mine, kMoeExperts);
    router.backward(routed, dweights, {&balance, c.balance * double(ranks)}, dlogits.data(),
                    DataType::float64);
    add(of_all[0], transposed(x) * dlogits);
    add(of_all[1], sum_of_rows(dlogits));
    of_dense->update(of_all, dense);
    of_experts->update(of_mine, experts);
  }
  MoeParameters result = dense;
  constexpr std::size_t kOne = kMoeWidth * kMoeWidth;
  std::vector<double> own, gathered(kMoeExperts * kOne);
  for (const Matrix& m : experts) own.insert(own.end(), m.values.begin(), m.values.end());
  ep.run(
      call_of(Collective::all_gather, own.data(), gathered.data(), own.size(), DataType::float64));
  for (std::size_t e = 0; e < kMoeExperts; ++e) {
    result.emplace_back(kMoeWidth, kMoeWidth);
    std::copy_n(gathered.begin() + std::ptrdiff_t(e * kOne), kOne, result.back().values.begin());
  }
  return result;
}

double difference(const MoeParameters& a, const MoeParameters& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, difference(a[i], b[i]));
  return worst;
}

}  // namespace tutti::test
