// Training with ranks that come and go (docs/elastic.md): a linear model, data parallel, on
// synthetic data. A rank that dies is replaced, the others go on from the last step, and the new
// one gets the model from the rank that has done the most steps.
//
//     tutti run --elastic 2:4 build/examples/elastic [STEPS [--kill-every N]]
//
// With --kill-every, a rank kills itself about once in N steps, for show.
#include <tutti/tutti.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace {

constexpr std::size_t kWeights = 64, kSamples = 32;

/// All that a rank needs to go on, in one piece.
struct State {
  std::int64_t step = 0;
  std::array<float, kWeights> weights{};
};

/// The ranks that are there go on from where the furthest of them is.
void take_state(tutti::Communicator& comm, State& state) {
  std::vector<std::int64_t> steps(static_cast<std::size_t>(comm.size()));
  comm.all_gather(&state.step, steps.data(), 1, tutti::DataType::int64);
  int furthest = 0;
  for (int r = 0; r < comm.size(); ++r) {
    if (steps[static_cast<std::size_t>(r)] > steps[static_cast<std::size_t>(furthest)])
      furthest = r;
  }
  State next = state;  // a call that fails may have written a part of it
  comm.broadcast(&next, &next, sizeof next, tutti::DataType::uint8, furthest);
  state = next;
  if (comm.rank() == 0) {
    std::printf("%d ranks go on from step %ld\n", comm.size(), static_cast<long>(state.step));
    std::fflush(stdout);
  }
}

/// One step on this rank's share of the data; the loss of all. The state changes at the very end:
/// a step that fails has not been done.
float train(tutti::Communicator& comm, State& state) {
  std::mt19937 data(static_cast<unsigned>(state.step * 1000 + comm.rank()));
  std::normal_distribution<float> normal;
  std::vector<float> sums(kWeights + 1);  // the gradient, and the loss
  for (std::size_t s = 0; s < kSamples; ++s) {
    std::array<float, kWeights> x{};
    float error = 0;
    for (std::size_t i = 0; i < kWeights; ++i) {
      x[i] = normal(data);
      const auto truth = static_cast<float>(i % 7) - 3;
      error += (state.weights[i] - truth) * x[i];
    }
    for (std::size_t i = 0; i < kWeights; ++i) sums[i] += error * x[i] / kSamples;
    sums[kWeights] += error * error / kSamples;
  }
  comm.all_reduce(sums.data(), sums.data(), sums.size(), tutti::DataType::float32,
                  tutti::ReduceKind::avg);
  for (std::size_t i = 0; i < kWeights; ++i) state.weights[i] -= 0.01F * sums[i];
  ++state.step;
  return sums[kWeights];
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const long steps = argc > 1 ? std::atol(argv[1]) : 300;
    const bool kills = argc > 3 && std::strcmp(argv[2], "--kill-every") == 0;
    std::mt19937 random(std::random_device{}());
    std::uniform_int_distribution<long> chance(1, kills ? std::max(std::atol(argv[3]), 1L) : 1);

    tutti::ElasticJob job;
    tutti::Communicator comm;
    State state;
    bool joins = true;
    while (state.step < steps) {
      try {
        if (joins || job.should_join(comm)) {
          job.join(comm);
          take_state(comm, state);
          joins = false;
        }
        if (kills && chance(random) == 1) std::raise(SIGKILL);
        const float loss = train(comm, state);
        if (comm.rank() == 0 && state.step % 20 == 0) {
          std::printf("step %ld on %d ranks: loss %.4f\n", static_cast<long>(state.step),
                      comm.size(), static_cast<double>(loss));
          std::fflush(stdout);
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));  // a real step takes longer
      } catch (const tutti::Error& error) {
        // A rank has died, or has joined again before this one. Anything else is for the user.
        if (error.code() != tutti::ErrorCode::peer_lost &&
            error.code() != tutti::ErrorCode::aborted) {
          throw;
        }
        joins = true;
      }
    }
  } catch (const tutti::Error& error) {
    std::fprintf(stderr, "elastic: %s\n", error.what());
    return 1;
  }
}
