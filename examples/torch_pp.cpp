// A pipeline with libtorch: each rank has one layer, and a batch goes through them in
// micro-batches.
//
//     tutti run -n 4 build/examples/torch_pp
#include <ATen/Context.h>
#include <torch/optim/adam.h>
#include <tutti/bindings/torch/linear.h>
#include <tutti/bindings/torch/pipeline.h>
#include <tutti/parallel/pipeline/generate.h>
#include <tutti/tutti.h>

#include <cstdio>

int main() try {
  auto comm = tutti::Communicator::from_environment();
  tutti::parallel::CommunicatorAxis axis(comm);
  namespace pp = tutti::parallel::pipeline;
  using at::Tensor;
  const int last = comm.size() - 1;
  tutti::libtorch::Linear layer(8, comm.rank() == last ? 1 : 8);
  torch::optim::Adam adam(layer.parameters(), 0.01);
  Tensor x;  // the batch: the first rank reads it, and the last one what it should become
  tutti::libtorch::Pipeline::Functions functions;
  functions.forward = [&](int stage, int micro_batch, const Tensor& input) -> Tensor {
    const Tensor rows = x.narrow(0, 8 * micro_batch, 8);
    const Tensor y = layer.forward(stage == 0 ? rows : input);
    return stage < last ? y : (y - rows.mean(1, true)).square().mean() / 4;
  };
  const auto schedule = pp::generate(*pp::find_generator("zb-h1"), {comm.size(), 4, 0});
  tutti::libtorch::Pipeline pipeline(axis, schedule, {.shape = {8, 8}}, functions);
  at::manual_seed(99);
  double loss = 0;
  for (int step = 0; step < 200; ++step) {
    x = at::randn({32, 8});
    adam.zero_grad();
    loss = pipeline.step();
    adam.step();
  }
  if (comm.rank() < last) return 0;  // it has no loss
  std::printf("rank %d of %d: loss %.6f after 200 steps\n", comm.rank(), comm.size(), loss);
} catch (const std::exception& error) {
  std::fprintf(stderr, "torch_pp: %s\n", error.what());
  return 1;
}
