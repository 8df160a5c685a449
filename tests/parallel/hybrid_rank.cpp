// A rank of a hybrid, as a process:
//
//     hybrid_rank                  mixtures of data, tensor and pipeline parallelism, compared with
//                                  one rank
//     hybrid_rank die RANK         that rank kills itself at any moment of a hybrid's step; the
//                                  others exit with 0 when they are told that a peer is lost: that
//                                  one, or one that has left because of it
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/parallel/hybrid_model.h"
#include "tutti.h"

namespace {

using namespace tutti;
using test::HybridCase;

bool compare(Communicator& world) {
  const test::TrainedAlone alone = test::train_alone(5);
  std::vector<HybridCase> cases{{.dp = 1, .tp = 4, .pp = 1, .sequence = true, .pieces = 2},
                                {.dp = 2, .tp = 2, .pp = 1, .zero = 3},
                                {.dp = 1, .tp = 2, .pp = 2, .sequence = true, .zero = 1},
                                {.dp = 2, .tp = 1, .pp = 2, .zero = 0}};
  for (HybridCase& c : cases) {
    if (world.size() == 8) c.dp *= 2;
    const test::TrainedHybrid got = test::train_hybrid(world, c, alone);
    if (world.rank() == 0) fmt::print("{}: {:.1e}\n", c.text(), got.worst);
    if (got.worst <= 1e-12 && got.unequal.empty()) continue;
    fmt::print(stderr, "rank {}: {}: {:.1e} {}\n", world.rank(), c.text(), got.worst, got.unequal);
    return false;
  }
  return true;
}

bool die(Communicator& world, int victim) {
  HybridCase c{.dp = 1, .tp = 2, .pp = 2, .sequence = true, .zero = 3, .steps = 1'000'000};
  c.before_step = [&](std::size_t step) {
    if (world.rank() != victim || step != 3) return;
    std::thread([] {
      const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
      std::this_thread::sleep_for(std::chrono::microseconds(now / 1000 % 20'000));
      std::raise(SIGKILL);
    }).detach();
  };
  try {
    test::train_hybrid(world, c, test::train_alone(1));
  } catch (const Error& error) {
    fmt::print("rank {}: {}: {}\n", world.rank(), name(error.code()), error.what());
    // In a pipeline, the others are told by abort().
    const std::string what = error.what();
    return error.code() == ErrorCode::peer_lost ||
           (error.code() == ErrorCode::aborted &&
            what.find("aborted the communicator: pipeline") != std::string::npos);
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    auto world = Communicator::from_environment();
    return (argc < 3 ? compare(world) : die(world, std::atoi(argv[2]))) ? 0 : 1;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 2;
  }
}
