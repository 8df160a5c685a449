// hybrid_model.h on a mesh: each rank computes its stages of the pipeline, with its part of each
// layer, on its part of the batch.
#include "tests/hybrid_model.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "parallel/mesh.h"
#include "parallel/pipeline/execute.h"
#include "parallel/pipeline/generate.h"
#include "parallel/tensor/linear.h"
#include "parallel/tensor/vocabulary.h"
#include "tests/hybrid_model_math.h"
#include "tests/hybrid_parameters.h"

namespace tutti::test {

using namespace parallel;

namespace {

using Size = HybridSizes;
using pipeline::Schedule;
constexpr DataType kType = DataType::float64;

/// Where a rank is, and what it has of the model.
struct Place {
  Mesh& mesh;
  const HybridCase& c;
  Schedule schedule;
  tensor::Vocabulary vocabulary;

  Place(Mesh& m, const HybridCase& given)
      : mesh(m),
        c(given),
        schedule(pipeline::generate(*pipeline::find_generator(c.schedule),
                                    {c.pp, c.micro_batches, c.chunks})),
        vocabulary(Size::tokens, m.axis("tp")) {}
  int tp() const { return mesh.coordinate("tp"); }
  bool has(int stage) const { return schedule.rank_of(stage) == mesh.coordinate("pp"); }
  int last() const { return schedule.stages() - 1; }
  /// Blocks of a stage: [first, first + count).
  std::size_t block_count() const {
    return Size::blocks / static_cast<std::size_t>(schedule.stages());
  }
  std::size_t first_block(int stage) const {
    return static_cast<std::size_t>(stage) * block_count();
  }
  bool tied() const { return schedule.rank_of(0) != schedule.rank_of(last()); }
  std::size_t rows() const {  // of a micro-batch
    return Size::rows / static_cast<std::size_t>(c.dp * c.micro_batches);
  }
  std::size_t local_rows() const {
    return c.sequence ? rows() / static_cast<std::size_t>(c.tp) : rows();
  }
};

/// This rank's units, with what they start with and what they should be at the end. Copies that are
/// not the first start with something else: it is up to the engine to make them the same.
std::vector<HeldUnit> held_units(const Place& at, const Weights& end) {
  const Weights start = Weights::initial();
  const Copies copies = at.c.sequence ? Copies::partial : Copies::equal;
  const auto hold = [&](const std::string& name, auto part, double decay, Copies how,
                        bool tied = false) {
    HeldParameter p{{name, how, tied}, decay, part(start), part(end)};
    const bool is_copy = (how != Copies::none && at.tp() > 0) || (tied && !at.has(0));
    if (is_copy) {
      for (double& v : p.start.values) v = 77;
    }
    return p;
  };
  const auto whole = [&](const std::string& name, auto of) { return hold(name, of, 0, copies); };
  std::vector<HeldUnit> units;
  for (int stage = 0; stage < at.schedule.stages(); ++stage) {
    if (!at.has(stage)) continue;
    const bool first = stage == 0, last = stage == at.last();
    if (first || (last && at.tied())) {
      // Rows of tokens; those of the padding are 0.
      const auto rows = [&](const Weights& w) {
        Matrix m(at.vocabulary.local, Size::width);
        std::memcpy(m.data(), w.embedding.data() + at.vocabulary.begin * Size::width,
                    at.vocabulary.real() * Size::width * sizeof(double));
        return m;
      };
      units.push_back({"embedding", {hold("embedding", rows, 1, Copies::none, at.tied())}});
    }
    for (std::size_t k = at.first_block(stage); k < at.first_block(stage) + at.block_count(); ++k) {
      const auto sliced = [&at, k](Matrix Weights::Block::*m, bool columns) {
        return [&at, k, m, columns](const Weights& w) {
          return (w.blocks[k].*m).slice(at.tp(), at.c.tp, columns);
        };
      };
      units.push_back(
          {fmt::format("block {}", k),
           {whole(fmt::format("gain {}", k), [k](auto& w) { return w.blocks[k].norm.gain; }),
            whole(fmt::format("shift {}", k), [k](auto& w) { return w.blocks[k].norm.bias; }),
            hold("w1", sliced(&Weights::Block::w1, false), 1, Copies::none),
            hold("b1", sliced(&Weights::Block::b1, true), 0, Copies::none),
            hold("w2", sliced(&Weights::Block::w2, true), 1, Copies::none),
            whole(fmt::format("b2 {}", k), [k](auto& w) { return w.blocks[k].b2; })}});
    }
    if (last) {
      units.push_back({"norm",
                       {whole("gain", [](auto& w) { return w.norm.gain; }),
                        whole("shift", [](auto& w) { return w.norm.bias; })}});
    }
  }
  return units;
}

/// What a rank computes: the functions of its stages.
class Stages {
 public:
  Stages(Place& at, const std::vector<HeldUnit>& units, HybridParameters& parameters)
      : at_(at), parameters_(parameters) {
    for (std::size_t u = 0; u < units.size(); ++u) unit_[units[u].name] = u;
    Axis& tp = at.mesh.axis("tp");
    const auto& c = at.c;
    for (int stage = 0; stage <= at.last(); ++stage) {
      if (!at.has(stage)) continue;
      if (stage == 0) {
        embedding_ = std::make_unique<tensor::VocabularyEmbedding>(
            tp, "tokens", Size::tokens, Size::width, kType,
            tensor::EmbeddingOptions{.sequence = c.sequence});
      }
      for (std::size_t k = at.first_block(stage); k < at.first_block(stage) + at.block_count();
           ++k) {
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
    f.backward = [this](int s, int m, auto in, auto out) { backward(s, m, in, out); };
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
    for (std::size_t k = at_.first_block(stage); k < at_.first_block(stage) + at_.block_count();
         ++k) {
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

  void backward(int stage, int m, pipeline::Stages::In in, pipeline::Stages::Out out) {
    Kept& kept = kept_.at({stage, m});
    const bool last = m + 1 == at_.c.micro_batches;  // they come in order
    Matrix d = local();
    if (stage == at_.last()) {
      const std::size_t u = unit_.at("norm"), e = unit_.at("embedding");
      // The engines of the data axis average.
      loss_of_->backward(kept.logits.data(), tokens(m, 1), kept.saved,
                         static_cast<double>(at_.c.dp) / Size::rows, kept.logits.data());
      parameters_.before(e, true);
      output_->backward(kept.logits.data(), kept.norms.back().data(), at_.rows(),
                        {value(e, 0), nullptr}, d.data(), {gradient(e, 0), nullptr});
      parameters_.after(e, true, last && at_.tied());  // else it is used once more
      parameters_.before(u, true);
      d = normalised_backward(kept.inputs.back(), value(u, 0), d, gradient(u, 0), gradient(u, 1));
      parameters_.after(u, true, last);
    } else {
      std::memcpy(d.data(), in.data(), in.size());
    }
    for (std::size_t i = at_.block_count(); i-- > 0;) {
      const std::size_t k = at_.first_block(stage) + i, u = block(k);
      parameters_.before(u, true);
      const Matrix& t = kept.hiddens[i];
      Matrix dt(t.rows, t.columns), dn = local();
      down_.at(k).backward(d.data(), t.data(), at_.rows(), {value(u, 4), value(u, 5)}, dt.data(),
                           {gradient(u, 4), gradient(u, 5)});
      const Matrix dh = times(dt, each(t, [](double v) { return 1 - v * v; }));
      layers_.at(k).backward(dh.data(), kept.norms[i].data(), at_.rows(),
                             {value(u, 2), value(u, 3)}, dn.data(),
                             {gradient(u, 2), gradient(u, 3)});
      d = d + normalised_backward(kept.inputs[i], value(u, 0), dn, gradient(u, 0), gradient(u, 1));
      if (step_ == at_.c.not_finite_in && at_.mesh.rank() == at_.mesh.shape().ranks() - 1) {
        *gradient(u, 2) = std::numeric_limits<double>::quiet_NaN();
      }
      parameters_.after(u, true, last);
    }
    if (stage > 0) {
      std::memcpy(out.data(), d.data(), out.size());
      return;
    }
    const std::size_t u = unit_.at("embedding");
    parameters_.before(u, true);
    embedding_->backward(tokens(m, 0), d.data(), gradient(u, 0));
    parameters_.after(u, true, last);
  }

  Place& at_;
  HybridParameters& parameters_;
  std::map<std::string, std::size_t> unit_;
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
  Place at(mesh, c);
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
    parameters->begin_step();
    stages.begin_step(step);
    executor.step();
    result.norms.push_back(parameters->end_step());
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
