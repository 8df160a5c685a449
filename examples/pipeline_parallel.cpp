// Pipeline parallelism with a framework of one's own: layers of y = tanh(W x), one on each rank,
// and a batch in micro-batches, which the 1F1B schedule leads through them. The executor calls what
// a stage computes, and moves activations and gradients from rank to rank meanwhile.
//
//     tutti run -n 4 build/examples/pipeline_parallel
#include <tutti/parallel/mesh.h>
#include <tutti/parallel/pipeline/execute.h>
#include <tutti/parallel/pipeline/generate.h>
#include <tutti/parallel/tensor/multiply.h>
#include <tutti/tutti.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

namespace pipeline = tutti::parallel::pipeline;
using tutti::parallel::tensor::multiply;

constexpr std::size_t kWidth = 16, kRows = 8, kSteps = 120;
constexpr int kMicroBatches = 8;
constexpr std::size_t kCount = kRows * kWidth;  // of what goes from a stage to the next

int main() {
  try {
    auto world = tutti::Communicator::from_environment();
    tutti::parallel::Mesh mesh(world, {{"pp", -1}});
    auto& pp = mesh.axis("pp");
    std::vector<float> w(kWidth * kWidth), gradient(w.size());  // of this rank's stage
    for (std::size_t i = 0; i < w.size(); ++i) {
      w[i] = 0.1f * std::sin(7.0f * float(i) + float(pp.rank())) + (i % (kWidth + 1) == 0 ? 1 : 0);
    }
    std::vector<float> x[kMicroBatches], y[kMicroBatches];  // kept from forward to backward
    double first_loss = 0, loss = 0;                        // on the last stage

    pipeline::Stages stages;
    stages.forward = [&](int, int m, auto in, auto out) {
      x[m].resize(kCount), y[m].resize(kCount);
      for (std::size_t i = 0; i < kCount; ++i) x[m][i] = std::sin(float(i) * 1.7f + float(m));
      if (!in.empty()) std::memcpy(x[m].data(), in.data(), in.size());
      multiply({.rows = kRows,
                .columns = kWidth,
                .inner = kWidth,
                .a = x[m].data(),
                .b = w.data(),
                .transpose_b = true,
                .c = y[m].data()});
      for (float& v : y[m]) v = std::tanh(v);
      if (!out.empty()) std::memcpy(out.data(), y[m].data(), out.size());
    };
    stages.backward = [&](int, int m, auto in, auto out) {
      std::vector<float> d(kCount);  // of the loss, by y
      if (!in.empty()) std::memcpy(d.data(), in.data(), in.size());
      for (std::size_t i = 0; in.empty() && i < kCount; ++i) {  // the last stage has the loss
        d[i] = y[m][i] - 0.5f * std::sin(float(i + 1) * 1.7f + float(m));
        loss += 0.5 * d[i] * d[i] / (kRows * kMicroBatches);
        d[i] /= kRows * kMicroBatches;
      }
      for (std::size_t i = 0; i < kCount; ++i) d[i] *= 1 - y[m][i] * y[m][i];
      multiply({.rows = kWidth,
                .columns = kWidth,
                .inner = kRows,
                .a = d.data(),
                .transpose_a = true,
                .b = x[m].data(),
                .c = gradient.data(),
                .adds = true});
      if (out.empty()) return;  // the first stage
      multiply({.rows = kRows,
                .columns = kWidth,
                .inner = kWidth,
                .a = d.data(),
                .b = w.data(),
                .c = reinterpret_cast<float*>(out.data())});
    };

    const auto schedule =
        pipeline::generate(*pipeline::find_generator("1f1b"), {pp.size(), kMicroBatches});
    const std::vector<std::size_t> bytes(std::size_t(pp.size() - 1), kCount * sizeof(float));
    pipeline::Executor executor(pp, schedule, bytes, stages);
    for (std::size_t step = 0; step < kSteps; ++step) {
      loss = 0;
      gradient.assign(gradient.size(), 0);
      executor.step();
      for (std::size_t i = 0; i < w.size(); ++i) w[i] -= 0.5f * gradient[i];
      if (step == 0) first_loss = loss;
    }
    double losses[2] = {first_loss, loss};
    world.broadcast(losses, losses, 2, tutti::DataType::float64, pp.size() - 1);
    const auto& statistics = executor.statistics();
    std::printf(
        "rank %d of %d: the loss fell from %.4f to %.4f; it kept %d micro-batches at most; "
        "%zu messages, %zu B sent\n",
        pp.rank(), pp.size(), losses[0], losses[1], statistics.live,
        std::size_t(statistics.sent.messages), std::size_t(statistics.sent.bytes));
  } catch (const tutti::Error& error) {
    std::fprintf(stderr, "pipeline_parallel: %s\n", error.what());
    return 1;
  }
}
