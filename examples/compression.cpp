// Gradients that travel in fewer bytes: a matrix is learned three times, with gradients averaged as
// they are, as a product of two narrow matrices (PowerSGD), and by a way of our own, in 8 bits.
//
//     tutti run -n 4 build/examples/compression
#include <tutti/parallel/data_parallel/data_parallel.h>
#include <tutti/parallel/data_parallel/reduction.h>
#include <tutti/parallel/mesh.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <vector>

namespace {

using tutti::Call;
using tutti::parallel::BucketLayout;

constexpr std::size_t kOutputs = 48, kInputs = 64;
constexpr int kSteps = 60;

/// Each step, the ranks agree on the largest gradient of a bucket, send theirs as whole numbers of
/// 127ths of it, and add up what arrives. What the rounding leaves out is added to the next step's
/// gradient.
class EightBits final : public tutti::parallel::Reduction {
 public:
  explicit EightBits(int ranks) : ranks_(static_cast<std::size_t>(ranks)) {}

  void bind(const BucketLayout& layout, std::byte* gradients) override {
    Reduction::bind(layout, gradients);
    states_.assign(layout.buckets.size(), {});
    for (std::size_t b = 0; b < states_.size(); ++b) {
      states_[b].error.assign(bucket(b).count, 0);
      states_[b].sent.resize(bucket(b).count);
      states_[b].received.resize(bucket(b).count * ranks_);
    }
  }
  int rounds() const override { return 2; }

  Call prepare(std::size_t b, int round) override {
    State& s = states_[b];
    auto* const gradients = reinterpret_cast<float*>(data(b));
    if (round == 0) {
      s.largest = 0;
      for (std::size_t i = 0; i < s.error.size(); ++i) {
        gradients[i] += s.error[i];
        // What is not finite makes `largest` so: on all ranks, which then notice.
        s.largest =
            std::isfinite(gradients[i]) ? std::max(s.largest, std::abs(gradients[i])) : HUGE_VALF;
      }
      return tutti::parallel::call_of(tutti::Collective::all_reduce, &s.largest, &s.largest, 1,
                                      tutti::DataType::float32, tutti::ReduceKind::max);
    }
    const float step = s.largest / 127;
    for (std::size_t i = 0; i < s.error.size(); ++i) {
      const float units = step > 0 && std::isfinite(step) ? std::round(gradients[i] / step) : 0;
      s.sent[i] = static_cast<std::int8_t>(units);
      s.error[i] = std::isfinite(step) ? gradients[i] - units * step : 0;
    }
    return tutti::parallel::call_of(tutti::Collective::all_gather, s.sent.data(), s.received.data(),
                                    s.sent.size(), tutti::DataType::int8);
  }

  void complete(std::size_t b) override {
    State& s = states_[b];
    auto* const averages = reinterpret_cast<float*>(data(b));
    const float unit = s.largest / 127 / static_cast<float>(ranks_);
    for (std::size_t i = 0; i < s.sent.size(); ++i) {
      int sum = 0;
      for (std::size_t r = 0; r < ranks_; ++r) sum += s.received[r * s.sent.size() + i];
      averages[i] = static_cast<float>(sum) * unit;
    }
  }

 private:
  struct State {  // of a bucket
    float largest = 0;
    std::vector<float> error;  // what has not been sent yet
    std::vector<std::int8_t> sent, received;
  };
  const std::size_t ranks_;
  std::vector<State> states_;
};

float input(std::size_t sample, std::size_t i) {
  return static_cast<float>((sample * 7919 + i * 6271 + sample * i * 31) % 1009) / 504 - 1;
}
/// What is to be learned: a matrix that is the sum of two products, so of rank 2.
float target(std::size_t row, std::size_t column) {
  const auto r = static_cast<float>(row), c = static_cast<float>(column);
  return std::sin(r) * std::cos(c) + 0.5f * std::cos(2 * r) * std::sin(3 * c);
}

struct Outcome {
  double loss, sent;  // the mean square of what is missing; bytes a step
};

Outcome learn(tutti::parallel::Mesh& mesh, const tutti::parallel::DataParallelPolicy& policy) {
  const auto rank = static_cast<std::size_t>(mesh.rank());
  const auto ranks = static_cast<std::size_t>(mesh.size("dp"));
  tutti::parallel::DataParallel engine(mesh.axis("dp"), {{"weights", {kOutputs, kInputs}}}, policy);
  const auto sent_before = engine.traffic().total().sent;  // of the axis, by other engines too
  std::vector<float> missing(kOutputs * kInputs);          // of the weights, which begin with 0
  for (std::size_t i = 0; i < missing.size(); ++i) missing[i] = target(i / kInputs, i % kInputs);

  for (int step = 0; step < kSteps; ++step) {
    engine.zero();
    auto* gradient = static_cast<float*>(engine.gradient(0));
    // Each rank has samples of its own; so its gradient differs from the others'.
    for (std::size_t s = rank; s < 2 * kInputs; s += ranks) {
      for (std::size_t row = 0; row < kOutputs; ++row) {
        float error = 0;
        for (std::size_t i = 0; i < kInputs; ++i) error += missing[row * kInputs + i] * input(s, i);
        for (std::size_t i = 0; i < kInputs; ++i) {
          gradient[row * kInputs + i] += error * input(s, i);
        }
      }
    }
    engine.ready(0);
    (void)engine.finish();
    gradient = static_cast<float*>(engine.gradient(0));
    const float rate = 0.5f * static_cast<float>(ranks) / kInputs;
    for (std::size_t i = 0; i < missing.size(); ++i) missing[i] -= rate * gradient[i];
  }
  double loss = 0;
  for (const float m : missing) loss += m * m / static_cast<double>(missing.size());
  return {loss, static_cast<double>(engine.traffic().total().sent - sent_before) / kSteps};
}

}  // namespace

int main() {
  try {
    auto world = tutti::Communicator::from_environment();
    tutti::parallel::Mesh mesh(world, {{"dp", -1}});
    tutti::parallel::DataParallelPolicy plain, low_rank, own;
    low_rank.power_sgd = tutti::parallel::PowerSgd{.rank = 2};
    own.reduction = tutti::parallel::OwnReduction{
        "8 bits", [&](auto, auto&) -> std::unique_ptr<tutti::parallel::Reduction> {
          return std::make_unique<EightBits>(mesh.size("dp"));
        }};
    const Outcome outcomes[] = {learn(mesh, plain), learn(mesh, low_rank), learn(mesh, own)};
    if (mesh.rank() == 0) {
      const char* const names[] = {"as they are", "rank 2", "8 bits"};
      for (int i = 0; i < 3; ++i) {
        std::printf("%-12s %6.0f B a step, loss %.6f\n", names[i], outcomes[i].sent,
                    outcomes[i].loss);
      }
    }
  } catch (const tutti::Error& error) {
    std::fprintf(stderr, "compression: %s\n", error.what());
    return 1;
  }
}
