// Experts and a shared sequence with libtorch: all ranks share each sequence, in a ring, and divide
// the experts of a layer. The model learns to say which number came two places before.
//
//     tutti run -n 4 build/examples/torch_moe
#include <ATen/Context.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/randint.h>
#include <torch/optim/adam.h>
#include <tutti/bindings/torch/attention.h>
#include <tutti/bindings/torch/data_parallel.h>
#include <tutti/bindings/torch/experts.h>
#include <tutti/tutti.h>

#include <cstdio>

using namespace tutti::libtorch;

constexpr std::int64_t kLength = 32, kBatch = 4, kWidth = 32, kNumbers = 8;

struct Model : torch::nn::Module {
  explicit Model(tutti::parallel::Axis& axis)
      : attention({.keys = &axis}, {.name = "attention",
                                    .sequence = kLength,
                                    .batch = kBatch,
                                    .heads = 2,
                                    .dim = kWidth / 2,
                                    .causal = false}) {
    numbers = register_parameter("numbers", at::empty({kNumbers, kWidth}).normal_(0, 0.5));
    places = register_parameter("places", at::empty({kLength, kWidth}).normal_(0, 0.5));
    qkv = register_module("qkv", std::make_shared<Linear>(kWidth, 3 * kWidth));
    moe = register_module("moe", std::make_shared<MixtureOfExperts>(
                                     axis,
                                     tutti::parallel::expert::ExpertShape{
                                         .name = "moe", .experts = 8, .width = kWidth, .top_k = 2},
                                     feed_forward(kWidth, 2 * kWidth),
                                     MixtureOptions{.renormalizes = true, .balance = 0.01}));
    out = register_module("out", std::make_shared<Linear>(kWidth, kNumbers));
  }
  /// Of this rank's positions: [rows, batch] -> [rows, batch, kNumbers].
  Tensor forward(const Tensor& input) {
    const Tensor x =
        at::embedding(numbers, input) + places.index_select(0, attention.positions()).unsqueeze(1);
    const auto three = qkv->forward(x).view({x.size(0), kBatch, 3, 2, kWidth / 2}).unbind(2);
    const Tensor y = x + attention.forward(three[0], three[1], three[2]).flatten(2);
    return out->forward(y + moe->forward(y));
  }
  ContextParallelAttention attention;
  Tensor numbers, places;
  std::shared_ptr<Linear> qkv, out;
  std::shared_ptr<MixtureOfExperts> moe;
};

int main() try {
  auto comm = tutti::Communicator::from_environment();
  auto alone = comm.split(comm.rank(), 0);
  tutti::parallel::CommunicatorAxis axis(comm), self(alone);
  at::manual_seed(1);  // the same model on all ranks
  Model model(axis);
  DataParallel rest(axis, model), experts(self, *model.moe->experts);  // each rank has its own
  auto parameters = model.parameters();
  for (const Tensor& p : model.moe->experts->parameters()) parameters.push_back(p);
  torch::optim::Adam adam(parameters, 0.01);
  const Tensor own = model.attention.positions();
  double loss = 0;
  for (int step = 0; step < 200; ++step) {
    const Tensor sequence = at::randint(kNumbers, {kLength, kBatch}, at::kLong);
    const Tensor wanted = sequence.roll(2, 0).index_select(0, own);
    const Tensor logits = model.forward(sequence.index_select(0, own));
    const Tensor mean = at::cross_entropy_loss(logits.flatten(0, 1), wanted.flatten());
    adam.zero_grad();
    mean.backward();
    rest.finish();
    experts.finish();
    adam.step();
    loss = mean.item<double>();
  }
  std::size_t rows = 0;
  for (const std::size_t of_expert : model.moe->received()) rows += of_expert;
  std::printf(
      "rank %d of %d: loss %.6f after 200 steps; its experts got %zu rows of the last one\n",
      comm.rank(), comm.size(), loss, rows);
} catch (const std::exception& error) {
  std::fprintf(stderr, "torch_moe: %s\n", error.what());
  return 1;
}
