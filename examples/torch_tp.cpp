// Tensor parallelism with libtorch: the ranks share two linear layers, and all work on the same
// data.
//
//     tutti run -n 4 build/examples/torch_tp
#include <ATen/Context.h>
#include <torch/optim/adam.h>
#include <tutti/bindings/torch/tensor_parallel.h>
#include <tutti/tutti.h>

#include <cstdio>

int main() try {
  auto comm = tutti::Communicator::from_environment();
  tutti::parallel::CommunicatorAxis axis(comm);
  using namespace tutti::libtorch;
  ColumnParallelLinear up(axis, "up", 8, 64);   // each rank has 64 / P of the hidden numbers
  RowParallelLinear down(axis, "down", 64, 1);  // which are added up
  at::manual_seed(1 + std::uint64_t(comm.rank()));
  for (const Tensor& part : {up.weight, up.bias, down.weight}) part.data().uniform_(-0.3, 0.3);
  down.bias.data().zero_();  // all ranks have it
  torch::optim::Adam adam({up.weight, up.bias, down.weight, down.bias}, 0.01);
  at::manual_seed(99);  // the same data on all ranks
  double loss = 0;
  for (int step = 0; step < 200; ++step) {
    const Tensor x = at::randn({32, 8});
    const Tensor y = down.forward(up.forward(x).tanh());
    const Tensor squares = (y - x.mean(1, true)).square().mean();
    adam.zero_grad();
    squares.backward();
    adam.step();
    loss = squares.item<double>();
  }
  std::printf("rank %d of %d: loss %.6f after 200 steps\n", comm.rank(), comm.size(), loss);
} catch (const std::exception& error) {
  std::fprintf(stderr, "torch_tp: %s\n", error.what());
  return 1;
}
