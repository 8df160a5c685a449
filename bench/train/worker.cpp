// A rank that bench.py starts: trains as `train` does with the same arguments, so many steps
// whenever it reads a number, and answers with a line of JSON. Between its turns it does nothing.
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <time.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "examples/train/trainer.h"
#include "tutti.h"

namespace {

using Clock = std::chrono::steady_clock;
using namespace train;

double milliseconds(Clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

/// That this process has computed for, on all of its threads.
double processor_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

/// A line of /proc/self/status, in bytes.
double memory(const std::string& what) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(what + ":")) return 1024 * std::stod(line.substr(what.size() + 1));
  }
  return 0;
}

void serve(tutti::Communicator& world, const Options& options) {
  const Text text(options.text);
  const double before = memory("VmRSS");
  Ranks ranks(world, options);
  Trainer trainer(ranks, options);
  fmt::print("{{\"ready\": {}}}\n", options.shape.parameters());
  std::fflush(stdout);
  std::uint64_t step = 0;
  for (int steps = 0; std::cin >> steps;) {
    std::vector<double> times, waited, computed;
    double loss = 0;
    for (int i = 0; i < steps; ++i) {
      ranks.cost();
      const auto from = Clock::now();
      const double computed_before = processor_time();
      loss = trainer.step(text, ++step).loss;
      times.push_back(milliseconds(Clock::now() - from));
      computed.push_back(processor_time() - computed_before);
      waited.push_back(milliseconds(ranks.cost().waited));
    }
    fmt::print(
        "{{\"times\": [{:.3f}], \"waited\": [{:.3f}], \"computed\": [{:.3f}], \"loss\": {:.6f}, "
        "\"peak\": {:.0f}}}\n",
        fmt::join(times, ", "), fmt::join(waited, ", "), fmt::join(computed, ", "), loss,
        memory("VmHWM") - before);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options = parse_options(argc, argv);
  try {
    tutti::libtorch::check_version();
    at::set_num_threads(options.threads);
    auto world = tutti::Communicator::from_environment();
    options.fit(world.size());
    serve(world, options);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "train_worker: %s\n", e.what());
    return 1;
  }
}
