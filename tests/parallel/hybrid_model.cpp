// hybrid_model.h on a mesh: each rank computes its stages of the pipeline, with its part of each
// layer, on its part of the batch.
#include "tests/parallel/hybrid_model.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "parallel/mesh.h"
#include "parallel/pipeline/execute.h"
#include "parallel/tensor/linear.h"
#include "parallel/tensor/vocabulary.h"
#include "tests/parallel/hybrid_model_math.h"
#include "tests/parallel/hybrid_parameters.h"
#include "tests/parallel/hybrid_place.h"

namespace tutti::test {

using namespace parallel;

namespace {

using Size = HybridSizes;
constexpr DataType kType = DataType::float64;

/// What a rank computes: the functions of its stages.
class Stages {
 public:
  Stages(HybridPlace& at, const std::vector<HeldUnit>& units, HybridParameters& parameters)
      : at_(at), parameters_(parameters) {
    for (std::size_t u = 0; u < units.size(); ++u) unit_[units[u].name] = u;
    uses_.assign(units.size(), at.c.micro_batches);
    uses_over_.resize(units.size());
    // The first stage and the last use it, here.
    if (at.has(0) && at.has(at.last())) uses_[unit_.at("embedding")] *= 2;
    Axis& tp = at.mesh.axis("tp");
    const auto& c = at.c;
    for (int stage = 0; stage <= at.last(); ++stage) {
      if (!at.has(stage)) continue;
      if (stage == 0) {
        embedding_ = std::make_unique<tensor::VocabularyEmbedding>(
            tp, "tokens", Size::tokens, Size::width, kType,
            tensor::EmbeddingOptions{.sequence = c.sequence});
      }
      for (std::size_t k = at.blocks(stage).first; k < at.blocks(stage).end(); ++k) {
        layers_.emplace(std::piecewise_construct, std::tuple(k),
                        std::tuple(std::ref(tp),
                                   tensor::LinearShape{fmt::format("up {}", k), Size::width,
                                                       Size::hidden, kType},
                                   tensor::ColumnOptions{false, c.sequence, c.pieces}));
        down_.emplace(std::piecewise_construct, std::tuple(k),
                      std::tuple(std::ref(tp),
                                 tensor::LinearShape{fmt::format("down {}", k), Size::hidden,
                                                     Size::width, kType},
                                 tensor::RowOptions{true, c.sequence, c.pieces}));
      }
      if (stage != at.last()) continue;
      output_ = std::make_unique<tensor::ColumnParallelLinear>(
          tp, tensor::LinearShape{"output", Size::width, at.vocabulary.padded, kType},
          tensor::ColumnOptions{false, c.sequence, c.pieces});
      loss_of_ = std::make_unique<tensor::VocabularyCrossEntropy>(tp, "loss", Size::tokens, kType);
    }
  }

  pipeline::Stages functions() {
    pipeline::Stages f;
    f.forward = [this](int s, int m, auto in, auto out) { forward(s, m, in, out); };
    f.backward = [this](int s, int m, auto in, auto out) {
      backward(pipeline::Work::backward, s, m, in, out);
    };
    f.backward_inputs = [this](int s, int m, auto in, auto out) {
      backward(pipeline::Work::backward_inputs, s, m, in, out);
    };
    f.backward_weights = [this](int s, int m) {
      backward(pipeline::Work::backward_weights, s, m, {}, {});
    };
    return f;
  }

  void begin_step(std::size_t step) {
    step_ = step;
    loss = 0;
  }
  double loss = 0;  // of this rank's part of the batch, on the last stage

 private:
  struct Kept {  // from a forward to its backward
    std::vector<Matrix> inputs, hiddens, norms;
    Matrix logits{0, 0};
    std::vector<Matrix> outer, inner;  // by block: the gradients of what its two layers have made
    Matrix of_embedding{0, 0};
    tensor::VocabularyCrossEntropy::Saved saved;
  };

  Matrix local() const { return {at_.local_rows(), Size::width}; }
  const double* value(std::size_t u, std::size_t p) { return parameters_.value(u, p); }
  double* gradient(std::size_t u, std::size_t p) { return parameters_.gradient(u, p); }
  std::size_t block(std::size_t k) const { return unit_.at(fmt::format("block {}", k)); }
  std::vector<tensor::Token> tokens(int micro_batch, std::size_t offset) const {
    std::vector<tensor::Token> ids;
    const std::size_t part =
        static_cast<std::size_t>(at_.mesh.coordinate("dp") * at_.c.micro_batches + micro_batch);
    for (std::size_t i = part * at_.rows(); i < (part + 1) * at_.rows(); ++i) {
      ids.push_back(token(step_, i / Size::length, i % Size::length + offset));
    }
    return ids;
  }

  void forward(int stage, int m, pipeline::Stages::In in, pipeline::Stages::Out out) {
    Kept& kept = kept_[{stage, m}];
    kept = {};
    Matrix x = local();
    if (stage == 0) {
      const std::size_t u = unit_.at("embedding");
      parameters_.before(u, false);
      embedding_->forward(tokens(m, 0), value(u, 0), x.data());
      parameters_.after(u, false, false);
    } else {
      std::memcpy(x.data(), in.data(), in.size());
    }
    for (std::size_t k = at_.blocks(stage).first; k < at_.blocks(stage).end(); ++k) {
      const std::size_t u = block(k);
      parameters_.before(u, false);
      kept.inputs.push_back(x);
      kept.norms.push_back(normalised(x, value(u, 0), value(u, 1)));
      Matrix h(at_.rows(), layers_.at(k).local_out()), y = local();
      layers_.at(k).forward(kept.norms.back().data(), at_.rows(), {value(u, 2), value(u, 3)},
                            h.data());
      kept.hiddens.push_back(each(h, [](double v) { return std::tanh(v); }));
      down_.at(k).forward(kept.hiddens.back().data(), at_.rows(), {value(u, 4), value(u, 5)},
                          y.data());
      x = x + y;
      parameters_.after(u, false, false);
    }
    if (stage < at_.last()) {
      std::memcpy(out.data(), x.data(), out.size());
      return;
    }
    const std::size_t u = unit_.at("norm"), e = unit_.at("embedding");
    kept.inputs.push_back(x);
    parameters_.before(u, false);
    kept.norms.push_back(normalised(x, value(u, 0), value(u, 1)));
    parameters_.after(u, false, false);
    parameters_.before(e, false);
    kept.logits = Matrix(at_.rows(), at_.vocabulary.local);
    output_->forward(kept.norms.back().data(), at_.rows(), {value(e, 0), nullptr},
                     kept.logits.data());
    parameters_.after(e, false, false);
    loss_of_->forward(kept.logits.data(), tokens(m, 1), kept.saved);
    for (const double l : kept.saved.loss) loss += l / Size::rows;
  }

  /// A backward, or one of its two parts: that of the inputs makes the norms' gradients, too.
  void backward(pipeline::Work work, int stage, int m, pipeline::Stages::In in,
                pipeline::Stages::Out out) {
    const bool inputs = work != pipeline::Work::backward_weights;
    const bool weights = work != pipeline::Work::backward_inputs;
    const auto of_input = [&](Matrix& d) { return inputs ? d.data() : nullptr; };
    const auto of_weight = [&](std::size_t u, std::size_t p) {
      return weights ? gradient(u, p) : nullptr;
    };
    Kept& kept = kept_.at({stage, m});
    Matrix d = local();
    if (stage == at_.last()) {
      const std::size_t u = unit_.at("norm"), e = unit_.at("embedding");
      // The engines of the data axis average.
      if (inputs) {
        loss_of_->backward(kept.logits.data(), tokens(m, 1), kept.saved,
                           static_cast<double>(at_.c.dp) / Size::rows, kept.logits.data());
      }
      parameters_.before(e, true);
      output_->backward(kept.logits.data(), kept.norms.back().data(), at_.rows(),
                        {value(e, 0), nullptr}, of_input(d), {of_weight(e, 0), nullptr});
      after_backward(e, weights);
      if (inputs) {
        parameters_.before(u, true);
        d = normalised_backward(kept.inputs.back(), value(u, 0), d, gradient(u, 0), gradient(u, 1));
        after_backward(u, true);
      }
    } else if (inputs) {
      std::memcpy(d.data(), in.data(), in.size());
    }
    kept.outer.resize(at_.blocks(stage).count, local());
    kept.inner.resize(at_.blocks(stage).count, local());
    for (std::size_t i = at_.blocks(stage).count; i-- > 0;) {
      const std::size_t k = at_.blocks(stage).first + i, u = block(k);
      parameters_.before(u, true);
      const Matrix& t = kept.hiddens[i];
      Matrix dt(t.rows, t.columns), dn = local();
      if (inputs) kept.outer[i] = d;
      down_.at(k).backward(kept.outer[i].data(), t.data(), at_.rows(), {value(u, 4), value(u, 5)},
                           of_input(dt), {of_weight(u, 4), of_weight(u, 5)});
      if (inputs) kept.inner[i] = times(dt, each(t, [](double v) { return 1 - v * v; }));
      layers_.at(k).backward(kept.inner[i].data(), kept.norms[i].data(), at_.rows(),
                             {value(u, 2), value(u, 3)}, of_input(dn),
                             {of_weight(u, 2), of_weight(u, 3)});
      if (inputs) {
        d = d +
            normalised_backward(kept.inputs[i], value(u, 0), dn, gradient(u, 0), gradient(u, 1));
      }
      if (step_ == at_.c.not_finite_in && at_.mesh.rank() == at_.mesh.shape().ranks() - 1) {
        *gradient(u, 2) = std::numeric_limits<double>::quiet_NaN();
      }
      after_backward(u, weights);
    }
    if (stage > 0) {
      if (inputs) std::memcpy(out.data(), d.data(), out.size());
      return;
    }
    if (inputs) kept.of_embedding = d;
    if (!weights) return;
    const std::size_t u = unit_.at("embedding");
    parameters_.before(u, true);
    embedding_->backward(tokens(m, 0), kept.of_embedding.data(), gradient(u, 0));
    after_backward(u, true);
  }

  /// `whole`: one of its uses is over with it; the last of a step is the last of all of them.
  void after_backward(std::size_t unit, bool whole) {
    const bool last = whole && ++uses_over_[unit] == uses_[unit];
    if (last) uses_over_[unit] = 0;
    parameters_.after(unit, true, last);
  }

  HybridPlace& at_;
  HybridParameters& parameters_;
  std::map<std::string, std::size_t> unit_;
  std::vector<int> uses_, uses_over_;  // by unit: backwards in a step
  std::unique_ptr<tensor::VocabularyEmbedding> embedding_;
  std::map<std::size_t, tensor::ColumnParallelLinear> layers_;
  std::map<std::size_t, tensor::RowParallelLinear> down_;
  std::unique_ptr<tensor::ColumnParallelLinear> output_;
  std::unique_ptr<tensor::VocabularyCrossEntropy> loss_of_;
  std::map<std::pair<int, int>, Kept> kept_;  // by stage and micro-batch
  std::size_t step_ = 0;
};

/// "" where all ranks of the axis have the same bits.
std::string unequal(Axis& axis, const std::vector<double>& values, const char* which) {
  std::vector<double> all(values.size() * static_cast<std::size_t>(axis.size()));
  axis.all_gather(values.data(), all.data(), values.size(), kType).wait();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (std::memcmp(&all[i], &values[i % values.size()], sizeof(double)) != 0) {
      return fmt::format("{}: rank {} of the axis has another number {}", which, i / values.size(),
                         i % values.size());
    }
  }
  return "";
}

}  // namespace

std::string HybridCase::text() const {
  return fmt::format("dp {} tp {} pp {}, {} of {} micro-batches, sequence {}, pieces {}, zero {}",
                     dp, tp, pp, schedule, micro_batches, sequence, pieces, zero);
}

TrainedHybrid train_hybrid(Communicator& world, const HybridCase& c, const TrainedAlone& alone) {
  Mesh mesh(world, {{"pp", c.pp}, {"dp", c.dp}, {"tp", c.tp}});
  CommunicatorAxis &pp = mesh.axis("pp"), &dp = mesh.axis("dp"), &tp = mesh.axis("tp");
  HybridPlace at(mesh, c);
  PipelineEnds ends(pp, at.schedule.rank_of(0), at.schedule.rank_of(at.last()));
  const std::vector<HeldUnit> units = held_units(at, alone.weights);
  const auto parameters =
      make_parameters(c, units, dp, {.tensor = &tp, .ends = ends.axis()}, {&tp, &pp});
  Stages stages(at, units, *parameters);
  const std::vector<std::size_t> bytes(static_cast<std::size_t>(at.last()),
                                       at.local_rows() * Size::width * sizeof(double));
  pipeline::Executor executor(pp, at.schedule, bytes, stages.functions());
  if (c.trace) {
    for (const char* name : {"pp", "dp", "tp"}) mesh.axis(name).trace(c.trace, name);
  }
  TrainedHybrid result;
  for (std::size_t step = 0; step < c.steps; ++step) {
    if (c.before_step) c.before_step(step);
    for (Axis* axis : std::initializer_list<Axis*>{&pp, &dp, &tp, ends.axis()}) {
      if (axis != nullptr) axis->reset_traffic();
    }
    parameters->begin_step();
    stages.begin_step(step);
    executor.step();
    result.norms.push_back(parameters->end_step());
    result.data = dp.traffic();
    result.tensor = tp.traffic();
    result.pipeline = pp.traffic();
    if (ends.axis() != nullptr) result.ends = ends.axis()->traffic();
    if (!at.has(at.last())) continue;
    dp.run(call_of(Collective::all_reduce, &stages.loss, &stages.loss, 1, kType));
    result.losses.push_back(stages.loss);
  }

  std::vector<double> copies, tied;
  for (std::size_t u = 0; u < units.size(); ++u) {
    parameters->before(u, false);
    for (std::size_t p = 0; p < units[u].parameters.size(); ++p) {
      const HeldParameter& held = units[u].parameters[p];
      Matrix got = held.expected;
      std::memcpy(got.data(), parameters->value(u, p), got.values.size() * sizeof(double));
      result.worst = std::max(result.worst, difference(got, held.expected));
      const auto add = [&](std::vector<double>& to) {
        to.insert(to.end(), got.values.begin(), got.values.end());
      };
      add(result.parameters);
      if (held.shared.copies != Copies::none) add(copies);
      if (held.shared.tied) add(tied);
    }
    parameters->after(u, false, false);
  }
  result.unequal = unequal(dp, result.parameters, "data parallel replicas");
  result.unequal += unequal(tp, copies, "copies inside tensor parallelism");
  if (ends.axis() != nullptr) result.unequal += unequal(*ends.axis(), tied, "tied parameters");
  return result;
}

}  // namespace tutti::test
