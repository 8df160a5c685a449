#include "examples/train/trainer.h"

#include <fmt/format.h>

#include "core/error.h"
#include "parallel/pipeline/generate.h"

namespace train {
namespace {

namespace parallel = tutti::parallel;
using parallel::Axis;
using tutti::Collective;
using tutti::DataType;
using tutti::ReduceKind;

parallel::pipeline::Schedule schedule_of(const Options& o) {
  parallel::pipeline::Schedule schedule;
  schedule.placement = {0};
  if (o.pp == 1) return schedule;
  schedule = parallel::pipeline::generate(*parallel::pipeline::find_generator(o.schedule),
                                          {o.pp, o.micro_batches});
  if (schedule.stages() > o.shape.layers + 2) {
    throw tutti::Error(tutti::ErrorCode::invalid_argument,
                       fmt::format("this mix cannot be: {} of {} ranks has {} stages, and there "
                                   "are {} layers",
                                   o.schedule, o.pp, schedule.stages(), o.shape.layers + 2));
  }
  return schedule;
}

}  // namespace

Trainer::Trainer(Ranks& ranks, const Options& o)
    : ranks_(ranks),
      options_(o),
      split_{.axis = o.tp > 1 ? &ranks.tensor() : nullptr, .sequence = o.sequence},
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
  parameters_ = make_parameters(o, ranks, ends, std::move(own));
  if (o.pp == 1) return;
  const std::int64_t rows = o.batch / o.dp / o.micro_batches * o.shape.length;
  pipeline_.emplace(
      ranks.pipeline(), schedule_,
      tutti::libtorch::Pipeline::Between{.shape = {o.sequence ? rows / o.tp : rows, o.shape.width},
                                         .type = o.shape.type},
      tutti::libtorch::Pipeline::Functions{
          .forward = [this](int stage, int m, const Tensor& x) { return forward(stage, m, x); },
          .before_backward = [this](int, bool last) { parameters_->begin_backward(last); },
          .after_backward = [this](int, bool) { parameters_->end_backward(); },
          .backward_weights =
              [this](int stage, bool last, const auto& make) {
                parameters_->make_later(layers_.at(stage), last, make);
              }});
}
Trainer::~Trainer() = default;

Batch Trainer::batch(int micro_batch) const {
  const std::int64_t own = options_.batch / options_.dp, part = own / options_.micro_batches;
  return text_->batch(options_.seed, number_, ranks_.data_rank() * own + micro_batch * part, part,
                      options_.shape.length);
}

Tensor Trainer::forward(int stage, int micro_batch, const Tensor& input) {
  const bool last = stage + 1 == schedule_.stages();
  Batch data;
  if (stage == 0 || last) data = batch(micro_batch);
  Tensor x = stage == 0 ? data.tokens : input;
  for (const std::size_t layer : layers_.at(stage)) x = parameters_->forward(layer, x);
  return last ? loss_(x, data.next) / options_.micro_batches : x;
}

double Trainer::without_pipeline() {
  double sum = 0;
  for (int m = 0; m < options_.micro_batches; ++m) {
    const Tensor loss = forward(0, m, {});
    parameters_->begin_backward(m + 1 == options_.micro_batches);
    loss.backward();
    parameters_->end_backward();
    sum += loss.item<double>();
  }
  return sum;
}

Trainer::Result Trainer::step(const Text& text, std::uint64_t number) {
  text_ = &text;
  number_ = number;
  Result result;
  result.loss = pipeline_ ? pipeline_->step() : without_pipeline();
  result.norm = parameters_->step(options_.clip, options_.rate, options_.decay);
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
