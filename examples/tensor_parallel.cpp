// Tensor parallelism with a framework of one's own: y = W2 tanh(W1 x), where all ranks work on the
// same samples and each has a part of both matrices: rows of W1, columns of W2. So they need one
// all-reduce in the forward and one in the backward, and none for gradients.
//
//     tutti run -n 4 build/examples/tensor_parallel
#include <tutti/parallel/mesh.h>
#include <tutti/parallel/tensor/linear.h>
#include <tutti/tutti.h>

#include <cmath>
#include <cstdio>
#include <vector>

namespace tensor = tutti::parallel::tensor;

constexpr std::size_t kWidth = 16, kHidden = 64, kRows = 32, kSteps = 60;

// Of a matrix of kHidden x kWidth, or transposed; the same numbers whatever the number of ranks.
static float start(std::size_t hidden, std::size_t other) {
  return 0.2f * std::sin(7.0f * float(hidden * kWidth + other) + 1);
}

int main() {
  try {
    auto world = tutti::Communicator::from_environment();
    tutti::parallel::Mesh mesh(world, {{"tp", -1}});
    auto& tp = mesh.axis("tp");
    // A framework would hand in its multiplication here.
    tensor::ColumnParallelLinear up(tp, {"up", kWidth, kHidden});
    tensor::RowParallelLinear down(tp, {"down", kHidden, kWidth});
    const std::size_t local = up.local_out(), first = local * std::size_t(tp.rank());
    std::vector<float> w1(up.weight_count()), w2(down.weight_count());
    for (std::size_t i = 0; i < w1.size(); ++i) {
      w1[i] = start(first + i / kWidth, i % kWidth);
      w2[i] = start(first + i % local, i / local);
    }
    tp.reset_traffic();

    double first_loss = 0, loss = 0;
    for (std::size_t step = 0; step < kSteps; ++step) {
      std::vector<float> x(kRows * kWidth), hidden(kRows * local), y(x.size()), dx(x.size());
      for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::sin(float(i) * 1.7f);
      up.forward(x.data(), kRows, {w1.data(), nullptr}, hidden.data());
      for (float& h : hidden) h = std::tanh(h);
      down.forward(hidden.data(), kRows, {w2.data(), nullptr}, y.data());

      loss = 0;
      for (std::size_t i = 0; i < y.size(); ++i) {  // y becomes the gradient of the loss
        y[i] -= std::tanh(x[i] - 0.5f * x[(i + 1) % x.size()]);
        loss += 0.5 * y[i] * y[i] / kRows;
        y[i] /= kRows;
      }
      std::vector<float> g1(w1.size()), g2(w2.size()), d(hidden.size());
      down.backward(y.data(), hidden.data(), kRows, {w2.data(), nullptr}, d.data(),
                    {g2.data(), nullptr});
      for (std::size_t i = 0; i < d.size(); ++i) d[i] *= 1 - hidden[i] * hidden[i];
      // The gradient of x would go on to the layers below.
      up.backward(d.data(), x.data(), kRows, {w1.data(), nullptr}, dx.data(), {g1.data(), nullptr});
      for (std::size_t i = 0; i < w1.size(); ++i) w1[i] -= 0.05f * g1[i];
      for (std::size_t i = 0; i < w2.size(); ++i) w2[i] -= 0.05f * g2[i];
      if (step == 0) first_loss = loss;
    }
    const auto carried = tp.traffic()[tutti::Collective::all_reduce];
    std::printf(
        "rank %d of %d: the loss fell from %.4f to %.4f; it keeps %zu of %zu weights; "
        "%zu all-reduces, %zu B sent\n",
        tp.rank(), tp.size(), first_loss, loss, w1.size() + w2.size(), 2 * kHidden * kWidth,
        std::size_t(carried.calls), std::size_t(carried.sent));
  } catch (const tutti::Error& error) {
    std::fprintf(stderr, "tensor_parallel: %s\n", error.what());
    return 1;
  }
}
