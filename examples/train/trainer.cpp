#include "examples/train/trainer.h"

#include <ATen/Context.h>
#include <fmt/format.h>

#include <fstream>
#include <iterator>

#include "core/error.h"
#include "parallel/pipeline/generate.h"
#include "parallel/pipeline/text.h"

namespace train {
namespace {

namespace parallel = tutti::parallel;
using parallel::Axis;
using tutti::Collective;
using tutti::DataType;
using tutti::ReduceKind;

/// A generator's, or the user's own from a file, which the pipeline proves.
parallel::pipeline::Schedule schedule_of(const Options& o) {
  parallel::pipeline::Schedule schedule;
  schedule.placement = {0};
  if (o.pp == 1) return schedule;
  const auto refuse = [](const std::string& why) {
    throw tutti::Error(tutti::ErrorCode::invalid_argument, "this mix cannot be: " + why);
  };
  if (const auto* const generator = parallel::pipeline::find_generator(o.schedule)) {
    schedule = parallel::pipeline::generate(*generator, {o.pp, o.micro_batches});
  } else {
    std::ifstream file(o.schedule);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    schedule = parallel::pipeline::schedule_from_text(text);
    if (schedule.ranks() != o.pp || schedule.micro_batches != o.micro_batches) {
      refuse(fmt::format("{} is for pp {} and {} micro-batches, not for {} and {}", o.schedule,
                         schedule.ranks(), schedule.micro_batches, o.pp, o.micro_batches));
    }
  }
  if (schedule.stages() > o.shape.layers + 2) {
    refuse(fmt::format("{} of {} ranks has {} stages, and there are {} layers", o.schedule, o.pp,
                       schedule.stages(), o.shape.layers + 2));
  }
  return schedule;
}

/// Ranks that share sequences, if there are some.
std::shared_ptr<tutti::libtorch::ContextParallelAttention> attention_of(Ranks& ranks,
                                                                        const Options& o) {
  namespace sequence = parallel::sequence;
  if (o.cp == 1) return nullptr;
  const auto of = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  return std::make_shared<tutti::libtorch::ContextParallelAttention>(
      sequence::AttentionAxes{.heads = ranks.heads(), .keys = ranks.ring()},
      sequence::AttentionShape{.name = "attention",
                               .sequence = of(o.shape.length),
                               .batch = of(o.sequences()),
                               .heads = of(o.shape.heads / o.tp),
                               .dim = of(o.shape.width / o.shape.heads),
                               .type = tutti::libtorch::data_type(o.shape.type, "the model")},
      sequence::AttentionOptions{.order = o.cp > o.cp_heads ? sequence::SequenceOrder::zigzag
                                                            : sequence::SequenceOrder::contiguous});
}

Split split_of(Ranks& ranks, const Options& o) {
  return {.axis = o.tp > 1 ? &ranks.tensor() : nullptr,
          .sequence = o.sequence,
          .attention = attention_of(ranks, o),
          .experts = &ranks.experts(),
          .balanced = o.alone ? &ranks.experts() : &ranks.data(),
          .balance = o.balance / o.micro_batches};
}

}  // namespace

Trainer::Trainer(Ranks& ranks, const Options& o)
    : ranks_(ranks),
      options_(o),
      split_(split_of(ranks, o)),
      schedule_(schedule_of(o)),
      loss_(make_loss(o.shape, split_)) {
  const std::int64_t all = o.shape.layers + 2, stages = schedule_.stages();
  std::vector<std::shared_ptr<Layer>> own;
  for (int stage = 0; stage < stages; ++stage) {
    if (schedule_.rank_of(stage) != ranks.pipeline_rank()) continue;
    for (auto& layer :
         make_layers(o.shape, o.seed, all * stage / stages, all * (stage + 1) / stages, split_)) {
      layers_[stage].push_back(own.size());
      own.push_back(std::move(layer));
    }
  }
  Axis* ends = nullptr;
  if (o.shape.tied && o.pp > 1) {
    ends = ranks.ends(schedule_.rank_of(0), schedule_.rank_of(schedule_.stages() - 1));
  }
  std::vector<tutti::libtorch::NamedTensor> all_parameters;
  for (const auto& layer : own) {
    names_.push_back(layer->name());
    for (const auto& part : {layer, layer->experts}) {
      if (part == nullptr) continue;
      for (const auto& p : tutti::libtorch::trained_parameters(*part)) {
        all_parameters.push_back({layer->name() + "." + p.name, p.tensor});
      }
    }
  }
  if (o.check_nan) check_.emplace(std::move(all_parameters));
  parameters_ = make_parameters(o, ranks, ends, std::move(own));
  if (o.pp == 1) return;
  const std::int64_t rows = o.sequences() * o.shape.length / o.cp;
  pipeline_.emplace(
      ranks.pipeline(), schedule_,
      tutti::libtorch::Pipeline::Between{.shape = {o.sequence ? rows / o.tp : rows, o.shape.width},
                                         .type = o.shape.type},
      tutti::libtorch::Pipeline::Functions{
          .forward = [this](int stage, int m, const Tensor& x) { return forward(stage, m, x); },
          .before_backward = [this](int, bool last) { parameters_->begin_backward(last); },
          .after_backward =
              [this](int, bool) {
                computes("");
                parameters_->end_backward();
              },
          .backward_weights =
              [this](int stage, bool last, const auto& make) {
                computes(fmt::format("weights of stage {}", stage));
                parameters_->make_later(layers_.at(stage), last, make);
                computes("");
              }});
}
Trainer::~Trainer() = default;

Batch Trainer::batch(int micro_batch) const {
  const std::int64_t part = options_.sequences(), own = part * options_.micro_batches;
  Batch all = text_->batch(options_.seed, number_, ranks_.data_rank() * own + micro_batch * part,
                           part, options_.shape.length);
  if (!split_.attention) return all;
  const Tensor positions = split_.attention->positions();
  return {all.tokens.index_select(1, positions), all.next.index_select(1, positions)};
}

Tensor Trainer::forward(int stage, int micro_batch, const Tensor& input) {
  const bool last = stage + 1 == schedule_.stages();
  Batch data;
  if (stage == 0 || last) data = batch(micro_batch);
  Tensor x = stage == 0 ? data.tokens : input;
  for (const std::size_t layer : layers_.at(stage)) {
    computes(fmt::format("forward {} {}", names_[layer], micro_batch));
    x = parameters_->forward(layer, x);
    if (!trace_) continue;
    x.register_hook([this, what = fmt::format("backward {} {}", names_[layer], micro_batch)](
                        const Tensor&) { computes(what); });
  }
  if (last) {
    computes("loss");
    x = loss_(x, data.next) / options_.micro_batches;
    if (check_) {
      check_->look_at(x.item<double>(), fmt::format("the loss of micro-batch {}", micro_batch));
    }
  }
  computes("");
  return x;
}

void Trainer::trace(std::shared_ptr<parallel::Trace> trace) {
  trace_ = std::move(trace);
  ranks_.trace(trace_);
}

void Trainer::computes(const std::string& what) {
  if (!trace_) return;
  const auto now = parallel::Trace::Clock::now();
  if (!computes_.empty()) trace_->span("model", computes_, computes_since_, now);
  computes_ = what;
  computes_since_ = now;
}

double Trainer::without_pipeline() {
  double sum = 0;
  for (int m = 0; m < options_.micro_batches; ++m) {
    const Tensor loss = forward(0, m, {});
    parameters_->begin_backward(m + 1 == options_.micro_batches);
    loss.backward();
    computes("");
    parameters_->end_backward();
    sum += loss.item<double>();
  }
  return sum;
}

Trainer::Result Trainer::step(const Text& text, std::uint64_t number) {
  text_ = &text;
  number_ = number;
  // Ranks with the same rows leave out the same elements, others leave out others. Each step has a
  // seed of its own, so that a job which resumes needs no state of the generator.
  const Options& o = options_;
  const int rows_of = ranks_.positions_rank() + (o.sequence ? o.dp * ranks_.tensor().rank() : 0);
  if (o.shape.dropout > 0) {
    at::manual_seed((o.seed + static_cast<std::uint64_t>(rows_of)) * 1'000'003 + number);
  }
  Result result;
  result.loss = pipeline_ ? pipeline_->step() : without_pipeline();
  computes("");
  if (check_) check_->refuse(ranks_.world(), fmt::format("step {}", number));
  computes("optimizer");
  result.norm = parameters_->step(options_.clip);
  computes("");
  if (options_.alone) return result;
  const auto combine = [&](parallel::Axis& axis, ReduceKind kind) {
    axis.run(parallel::call_of(Collective::all_reduce, &result.loss, &result.loss, 1,
                               DataType::float64, kind));
  };
  combine(ranks_.pipeline(), ReduceKind::sum);  // only the last stage has one
  combine(ranks_.data(), ReduceKind::avg);
  return result;
}

}  // namespace train
