// What a program may choose about weights that go from one job to another.
#pragma once

#include <chrono>
#include <cstdint>

#include "../device.h"
#include "block.h"

namespace tutti::parallel::weights {

/// Of the sending job, but for `meeting`, `patience` and `device`, which each job has for itself.
struct WeightsOptions {
  /// Changes and planes (block.h): what may be used between hosts.
  Ways ways{};
  /// Use them whatever they cost. Otherwise the two jobs measure their links when they meet, and
  /// use what is faster than the link.
  bool always = false;
  std::chrono::nanoseconds meeting = std::chrono::seconds(10);  // for one attempt to meet
  /// For receive(): how long it waits for a version; 0: without limit.
  std::chrono::nanoseconds patience{0};
  /// Of this job's memory, which the other job need not have: a GPU's is read into memory of the
  /// host before it is sent, and written from there; null: the host. Outlives its user.
  Device* device = nullptr;
  std::uint64_t message_bytes = 1ull << 20;  // about the most between hosts
  bool prove = true;                         // the plan of the reshard
};

}  // namespace tutti::parallel::weights
