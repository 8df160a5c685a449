// Fully sharded data parallelism with libtorch: every rank keeps a part of each layer's parameters,
// gradients and optimizer state; a layer is whole only while it is used.
//
//     tutti run -n 4 build/examples/torch_fsdp
#include <ATen/Context.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>

#include "bindings/torch/fully_shard.h"

int main() try {
  auto comm = tutti::Communicator::from_environment();
  tutti::parallel::CommunicatorAxis axis(comm);
  at::manual_seed(1);  // the same on all ranks
  torch::nn::Linear hidden(8, 64), output(64, 1);
  torch::nn::Module model;
  model.register_module("hidden", hidden);
  model.register_module("output", output);
  tutti::libtorch::FullyShard fsdp({.shard = &axis}, model,
                                   {{"hidden", &*hidden}, {"output", &*output}});
  const tutti::parallel::AdamW adamw({.learning_rate = 0.01});
  at::manual_seed(2 + std::uint64_t(comm.rank()));
  double loss = 0;
  for (int step = 0; step < 200; ++step) {
    const at::Tensor x = at::randn({32, 8});
    at::Tensor y = fsdp.forward(
        0, [&](const at::Tensor& t) { return hidden->forward(t).tanh(); }, x);
    y = fsdp.forward(
        1, [&](const at::Tensor& t) { return output->forward(t); }, y);
    const at::Tensor squares = (y - x.mean(1, true)).square().mean();
    fsdp.backward(squares);
    fsdp.engine().clip_gradients(1.0);
    fsdp.engine().step(adamw);
    loss = squares.item<double>();
  }
  std::printf("rank %d of %d: loss %.6f after 200 steps\n", comm.rank(), comm.size(), loss);
} catch (const std::exception& error) {
  std::fprintf(stderr, "torch_fsdp: %s\n", error.what());
  return 1;
}
