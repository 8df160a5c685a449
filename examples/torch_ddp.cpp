// Data parallelism with libtorch: every rank has the whole model and its own data; backward()
// averages gradients among the ranks.
//
//     tutti run -n 4 build/examples/torch_ddp
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <tutti/bindings/torch/data_parallel.h>
#include <tutti/tutti.h>

#include <cstdio>

int main() try {
  auto comm = tutti::Communicator::from_environment();
  tutti::parallel::CommunicatorAxis axis(comm);
  torch::nn::Linear model(8, 1);
  tutti::libtorch::DataParallel ddp(axis, *model);  // all begin with rank 0's parameters
  torch::optim::SGD sgd(model->parameters(), 0.1);
  double loss = 0;
  for (int step = 0; step < 200; ++step) {
    const at::Tensor x = at::randn({32, 8});
    const at::Tensor difference = model->forward(x) - x.sum(1, true);
    const at::Tensor squares = difference.square().mean();
    sgd.zero_grad();
    ddp.backward(squares);
    sgd.step();
    loss = squares.item<double>();
  }
  std::printf("rank %d of %d: loss %.6f after 200 steps\n", comm.rank(), comm.size(), loss);
} catch (const std::exception& error) {
  std::fprintf(stderr, "torch_ddp: %s\n", error.what());
  return 1;
}
