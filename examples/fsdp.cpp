// Fully sharded data parallel training, without a framework: y = W2 tanh(W1 x) learns a function of
// 16 numbers. Every rank keeps a part of each matrix, of its gradient, and of AdamW's state; a
// layer is whole only while it is used.
//
//     tutti run -n 4 build/examples/fsdp
#include <tutti/parallel/sharded/sharded.h>
#include <tutti/tutti.h>

#include <cmath>
#include <cstdio>
#include <vector>

using namespace tutti::parallel;

constexpr std::size_t kIn = 16, kHidden = 64, kBatch = 32, kSteps = 60;

// Row by row: out += matrix in, or, transposed, out += matrix' in.
static void add_product(const float* m, std::size_t rows, std::size_t columns, const float* in,
                        float* out, bool transposed = false) {
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) {
      out[transposed ? j : i] += m[i * columns + j] * in[transposed ? i : j];
    }
  }
}

int main() try {
  auto comm = tutti::Communicator::from_environment();
  CommunicatorAxis axis(comm);
  ShardedDataParallel model({{.name = "hidden", .parameters = {{"W1", kHidden * kIn, kHidden}}},
                             {.name = "output", .parameters = {{"W2", kHidden, kHidden}}}},
                            Policy::fsdp(), {.shard = &axis});
  std::vector<float> start(kHidden * kIn);
  for (std::size_t i = 0; i < start.size(); ++i) start[i] = 0.2f * std::sin(7.0f * float(i) + 1);
  model.load({0, 0}, start.data());  // the same on all ranks; each takes its part
  model.load({1, 0}, start.data());
  model.share_parameters();

  const AdamW adamw({.learning_rate = 0.01});
  double first = 0, loss = 0;
  for (std::size_t step = 0; step < kSteps; ++step) {
    std::vector<float> x(kBatch * kIn), hidden(kBatch * kHidden), error(kBatch);
    loss = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {  // other samples on each rank, and in each step
      x[i] = std::sin(float((step * 131 + std::size_t(comm.rank())) * x.size() + i));
    }

    model.before_forward(0);
    const auto* w1 = static_cast<const float*>(model.parameter({0, 0}));
    for (std::size_t s = 0; s < kBatch; ++s) {
      add_product(w1, kHidden, kIn, &x[s * kIn], &hidden[s * kHidden]);
    }
    for (float& h : hidden) h = std::tanh(h);
    model.after_forward(0);

    model.before_forward(1);
    const auto* w2 = static_cast<const float*>(model.parameter({1, 0}));
    for (std::size_t s = 0; s < kBatch; ++s) {
      add_product(w2, 1, kHidden, &hidden[s * kHidden], &error[s]);
      error[s] -= std::tanh(x[s * kIn] - 0.5f * x[s * kIn + 1]);
      loss += 0.5 * error[s] * error[s] / kBatch;
    }
    model.after_forward(1);

    model.before_backward(1);
    std::vector<float> d(hidden.size());  // of the loss, by the hidden layer
    w2 = static_cast<const float*>(model.parameter({1, 0}));
    auto* g2 = static_cast<float*>(model.gradient({1, 0}));
    for (std::size_t s = 0; s < kBatch; ++s) {
      const float e = error[s] / kBatch;
      for (std::size_t h = 0; h < kHidden; ++h) g2[h] += e * hidden[s * kHidden + h];
      add_product(w2, 1, kHidden, &e, &d[s * kHidden], true);
    }
    model.after_backward(1);  // its gradients travel while the next ones are computed

    model.before_backward(0);
    auto* g1 = static_cast<float*>(model.gradient({0, 0}));
    for (std::size_t i = 0; i < d.size(); ++i) {
      const float slope = d[i] * (1 - hidden[i] * hidden[i]);
      for (std::size_t j = 0; j < kIn; ++j) {
        g1[i % kHidden * kIn + j] += slope * x[i / kHidden * kIn + j];
      }
    }
    model.after_backward(0);

    model.finish_backward();
    model.clip_gradients(1.0);
    model.step(adamw);

    comm.all_reduce(&loss, &loss, 1, tutti::DataType::float64, tutti::ReduceKind::avg);
    if (step == 0) first = loss;
  }
  const auto statistics = model.statistics();
  std::printf("rank %d of %d: the loss fell from %.4f to %.4f; it keeps %zu of %zu parameters\n",
              comm.rank(), comm.size(), first, loss, statistics.shard, statistics.parameters);
} catch (const tutti::Error& error) {
  std::fprintf(stderr, "fsdp: %s\n", error.what());
  return 1;
}
