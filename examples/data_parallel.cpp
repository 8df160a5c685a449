// Data parallelism with a framework of one's own: a linear model in raw buffers, trained by all
// ranks on data that each has a share of. The engine is told which gradient is ready, and averages
// them while backward goes on.
//
//     tutti run -n 4 build/examples/data_parallel
#include <tutti/parallel/data_parallel/data_parallel.h>
#include <tutti/parallel/mesh.h>
#include <tutti/tutti.h>

#include <cstdio>
#include <vector>

namespace {

constexpr int kInputs = 8, kSamples = 64, kSteps = 1000;

float input(int sample, int i) { return static_cast<float>((sample * 7 + i * 5) % 13 - 6) / 6; }
/// What is to be learned: the weights are 1, 2, 3 ... and the bias is 0.5.
float target(int sample) {
  float y = 0.5f;
  for (int i = 0; i < kInputs; ++i) y += static_cast<float>(i + 1) * input(sample, i);
  return y;
}

}  // namespace

int main() {
  try {
    auto world = tutti::Communicator::from_environment();
    tutti::parallel::Mesh mesh(world, {{"dp", -1}});
    const int rank = mesh.rank(), ranks = mesh.size("dp");

    // The model's memory is its own; only gradients are where the engine wants them.
    std::vector<float> weights(kInputs, static_cast<float>(rank));
    float bias = static_cast<float>(rank);
    tutti::parallel::DataParallel engine(mesh.axis("dp"), {{"weights", {kInputs}}, {"bias", {}}});
    void* const parameters[] = {weights.data(), &bias};
    engine.broadcast_parameters(parameters);  // all begin with rank 0's

    double loss = 0;
    for (int step = 0; step < kSteps; ++step) {
      engine.zero();
      auto* const weights_gradient = static_cast<float*>(engine.gradient(0));
      auto* const bias_gradient = static_cast<float*>(engine.gradient(1));
      loss = 0;
      for (int s = rank; s < kSamples; s += ranks) {
        float error = bias - target(s);
        for (int i = 0; i < kInputs; ++i) error += weights[i] * input(s, i);
        for (int i = 0; i < kInputs; ++i) weights_gradient[i] += error * input(s, i);
        *bias_gradient += error;
        loss += error * error;
      }
      engine.ready(1);  // from here on it is averaged, while others are computed
      engine.ready(0);
      (void)engine.finish();  // it may have moved the gradients
      const float rate = 0.5f * static_cast<float>(ranks) / kSamples;
      for (int i = 0; i < kInputs; ++i) {
        weights[i] -= rate * static_cast<float*>(engine.gradient(0))[i];
      }
      bias -= rate * *static_cast<float*>(engine.gradient(1));
    }
    const auto statistics = engine.statistics();
    std::printf(
        "rank %d of %d: loss %.6f, weights %.2f to %.2f, bias %.2f; %zu steps, %zu B sent\n", rank,
        ranks, loss, weights.front(), weights.back(), bias,
        static_cast<std::size_t>(statistics.steps),
        static_cast<std::size_t>(engine.traffic().total().sent));
  } catch (const tutti::Error& error) {
    std::fprintf(stderr, "data_parallel: %s\n", error.what());
    return 1;
  }
}
