// When a call gives the same bits as another one with the same inputs (docs/design.md,
// Determinism). The ranks are threads that treat each other as processes do.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "core/memory.h"
#include "tests/support/clean_environment.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using test::run_thread_ranks;

/// Sums of these depend on their order in almost every element.
float fraction_of(int rank, std::size_t i) {
  const auto bits = static_cast<std::uint32_t>((i + 1) * 2654435761U + 40503U * (rank + 1));
  return static_cast<float>(bits >> 8) * (i % 3 == 0 ? 1e-3F : 1.0F);
}

template <class Vector>
std::vector<float> summed(Communicator& c, std::size_t count) {
  Vector x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = fraction_of(c.rank(), i);
  c.all_reduce(x.data(), x.data(), count, DataType::float32);
  return {x.begin(), x.end()};
}

TEST(SameBits, AnAlgorithmWithoutWindowsGivesThemInAnyMemory) {
  const Environment environment{{{"TUTTI_APART", "1"}}};
  for (const char* algorithm :
       {"ring", "tree", "recursive_doubling", "recursive_halving", "one_shot", "two_shot"}) {
    Options options;
    options.algorithm = algorithm;
    run_thread_ranks(3, options, [&](Communicator& c) {
      for (const std::size_t count : {3, 8193, 300'007}) {
        const auto in_malloc = summed<std::vector<float>>(c, count);
        const auto in_window = summed<std::vector<float, Allocator<float>>>(c, count);
        EXPECT_EQ(std::memcmp(in_malloc.data(), in_window.data(), count * sizeof(float)), 0)
            << algorithm << ", " << count << " elements";
      }
    });
  }
}

TEST(SameBits, AChosenAlgorithmGivesThemInMemoryOfOneKind) {
  const Environment environment{{{"TUTTI_APART", "1"}}};
  constexpr std::size_t kCount = 8193;
  std::vector<std::vector<float>> in_malloc(6), in_window(6);  // of two runs of three ranks
  for (std::size_t run = 0; run < 2; ++run) {
    run_thread_ranks(3, [&](Communicator& c) {
      const std::size_t at = 3 * run + static_cast<std::size_t>(c.rank());
      in_malloc[at] = summed<std::vector<float>>(c, kCount);
      in_window[at] = summed<std::vector<float, Allocator<float>>>(c, kCount);
    });
  }
  for (std::size_t at = 1; at < 6; ++at) {
    EXPECT_EQ(std::memcmp(in_malloc[at].data(), in_malloc[0].data(), kCount * 4), 0) << at;
    EXPECT_EQ(std::memcmp(in_window[at].data(), in_window[0].data(), kCount * 4), 0) << at;
  }
}

}  // namespace
}  // namespace tutti
