// all_reduce by ranks of this host, forked from this process: checked, then timed.
#pragma once

#include <array>
#include <cstddef>

namespace tutti {

/// Bytes of a rank's float32 elements: what is small, what is large, and what is between.
inline constexpr std::array<std::size_t, 5> kDemoSizes{8, 2 << 10, 32 << 10, 512 << 10, 8 << 20};

/// Microseconds of a call, for each size.
using DemoTimes = std::array<double, kDemoSizes.size()>;

struct DemoMeasurement {
  DemoTimes windows{};  // in memory that the other ranks can address (tutti::Allocator)
  DemoTimes malloc{};
};

/// By `ranks` ranks. Throws Error where one fails, or where a sum is wrong.
DemoMeasurement measure_all_reduce(int ranks);

/// How often a call of so many bytes is made in a batch; the same for everybody who is compared.
int demo_calls(std::size_t bytes);

inline constexpr int kDemoBatches = 9;

}  // namespace tutti
