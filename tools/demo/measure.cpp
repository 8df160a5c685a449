#include "tools/demo/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "comm/communicator.h"
#include "core/error.h"
#include "core/memory.h"
#include "tools/forked_ranks.h"
#include "tools/spawn.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

// What a batch moves at least, and how many calls at most: so a batch of each size takes a few
// milliseconds on two cores.
constexpr std::size_t kBatchBytes = std::size_t{16} << 20;
constexpr int kMostCalls = 5000;
constexpr int kFewestCalls = 2;

/// rank + 1 and the element's place count, so neither a missing rank nor a shifted element passes.
float input(int rank, std::size_t i) { return static_cast<float>((rank + 1) * (1 + i % 7)); }

template <class Vector>
void check(const Vector& sums, int ranks, std::size_t bytes) {
  const float of_ranks = static_cast<float>(ranks * (ranks + 1) / 2);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const float wanted = of_ranks * static_cast<float>(1 + i % 7);
    if (sums[i] != wanted) {
      throw Error(ErrorCode::internal,
                  fmt::format("all_reduce of {} bytes: element {} is {}, and should be {}", bytes,
                              i, sums[i], wanted));
    }
  }
}

template <class Vector>
double time_of(Communicator& comm, std::size_t bytes) {
  Vector in(bytes / sizeof(float)), out(in.size());
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = input(comm.rank(), i);
  comm.all_reduce(in, out);
  check(out, comm.size(), bytes);
  const int calls = demo_calls(bytes);
  std::vector<double> batches;
  for (int batch = 0; batch <= kDemoBatches; ++batch) {
    comm.barrier();
    const auto begin = Clock::now();
    for (int i = 0; i < calls; ++i) comm.all_reduce(in, out);
    const std::chrono::duration<double, std::micro> time = Clock::now() - begin;
    if (batch > 0) batches.push_back(time.count() / calls);  // the first one is a warm-up
  }
  check(out, comm.size(), bytes);
  const auto middle = batches.begin() + kDemoBatches / 2;
  std::nth_element(batches.begin(), middle, batches.end());
  return *middle;
}

}  // namespace

int demo_calls(std::size_t bytes) {
  return std::clamp(static_cast<int>(kBatchBytes / bytes), kFewestCalls, kMostCalls);
}

DemoMeasurement measure_all_reduce(int ranks) {
  DemoMeasurement measured;
  run_forked<DemoMeasurement>(
      {ranks, choose_cores(ranks), ""}, measured, [](Communicator& comm, DemoMeasurement& result) {
        for (std::size_t s = 0; s < kDemoSizes.size(); ++s) {
          result.windows[s] = time_of<std::vector<float, Allocator<float>>>(comm, kDemoSizes[s]);
          result.malloc[s] = time_of<std::vector<float>>(comm, kDemoSizes[s]);
        }
      });
  return measured;
}

}  // namespace tutti
