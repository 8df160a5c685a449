// Ranks that make the same calls, some of them inside of a group() and some not, with buffers in
// windows on all ranks, on some, or on none. Exits with 1 when a result is wrong.
#include <fmt/format.h>

#include <cstdio>
#include <vector>

#include "tutti.h"

namespace {

constexpr std::size_t kCount = 100'003;  // large enough that windows would be used

/// Two calls in a row; `grouped`: this rank's are one group.
bool run(tutti::Communicator& comm, float* in, float* out, float* all, bool grouped) {
  const auto rank = static_cast<std::size_t>(comm.rank());
  const auto ranks = static_cast<std::size_t>(comm.size());
  for (std::size_t i = 0; i < kCount; ++i) in[i] = static_cast<float>(i % 1000 + 1000 * rank);
  const auto calls = [&] {
    comm.all_reduce(in, out, kCount, tutti::DataType::float32);
    comm.all_gather(in, all, kCount, tutti::DataType::float32);
  };
  grouped ? tutti::group(calls) : calls();
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::size_t sum = ranks * (i % 1000) + 1000 * (ranks * (ranks - 1) / 2);
    if (out[i] != static_cast<float>(sum)) return false;
    for (std::size_t r = 0; r < ranks; ++r) {
      if (all[r * kCount + i] != static_cast<float>(i % 1000 + 1000 * r)) return false;
    }
  }
  return true;
}

}  // namespace

int main() {
  try {
    auto comm = tutti::Communicator::from_environment();
    const auto ranks = static_cast<std::size_t>(comm.size());
    const std::size_t floats = kCount * (2 + ranks);
    std::vector<float> plain(floats);
    auto* const window = static_cast<float*>(tutti::allocate(floats * sizeof(float)));
    for (int in_windows = 0; in_windows <= comm.size(); ++in_windows) {
      float* const memory = comm.rank() < in_windows ? window : plain.data();
      for (int grouped = 0; grouped <= comm.size(); ++grouped) {
        if (run(comm, memory, memory + kCount, memory + 2 * kCount, comm.rank() < grouped))
          continue;
        fmt::print(stderr, "rank {}: wrong with {} ranks in windows, {} in a group\n", comm.rank(),
                   in_windows, grouped);
        return 1;
      }
    }
    tutti::deallocate(window);
    return 0;
  } catch (const std::exception& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 2;
  }
}
