#include "examples/train/trainer.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

namespace train {

using tutti::parallel::call_of;

Trainer::Trainer(Ranks& ranks, const Options& options) : ranks_(ranks), options_(options) {
  auto layers = make_layers(options.shape, options.seed, 0, options.shape.layers + 2);
  layers_ = layers.size();
  parameters_ = make_parameters(options, ranks, std::move(layers));
}
Trainer::~Trainer() = default;

double Trainer::micro_batch(const Batch& batch, bool last) {
  Tensor x = batch.tokens;
  for (std::size_t layer = 0; layer < layers_; ++layer) x = parameters_->forward(layer, x);
  const Tensor loss = loss_of(x, batch.next) / options_.micro_batches;
  parameters_->begin_backward(last);
  loss.backward();
  parameters_->end_backward();
  return loss.item<double>();
}

Trainer::Result Trainer::step(const Text& text, std::uint64_t number) {
  const std::int64_t own = options_.batch / options_.dp;
  const std::int64_t part = own / options_.micro_batches;
  Result result;
  for (int m = 0; m < options_.micro_batches; ++m) {
    const Batch batch = text.batch(options_.seed, number, ranks_.data_rank() * own + m * part, part,
                                   options_.shape.length);
    result.loss += micro_batch(batch, m + 1 == options_.micro_batches);
  }
  result.norm = parameters_->step(options_.clip, options_.rate, options_.decay);
  if (!options_.alone) {
    ranks_.data().run(call_of(tutti::Collective::all_reduce, &result.loss, &result.loss, 1,
                              tutti::DataType::float64, tutti::ReduceKind::avg));
  }
  return result;
}

}  // namespace train
