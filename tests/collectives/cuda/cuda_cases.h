// The tests of the CUDA executor that run on every device: the host's (cuda_host_test) and a GPU
// (tests/gpu).
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <span>

#include "tests/collectives/cuda/cuda_matrix.h"

namespace tutti::test {

/// Sizes around every boundary of kSmallSlots.
inline constexpr std::size_t kBoundaries[] = {
    0, 1, 7, 8, 9, 63, 64, 119, 120, 121, 128, 255, 256, 257, 512, 513, 959, 960, 961, 2049, 5000};

/// The k-th of everything that a test does not vary itself.
inline DeviceCase nth(const Algorithm& a, std::size_t k, int ranks) {
  DeviceCase c;
  c.algorithm = &a;
  c.type = static_cast<DataType>(k % kDataTypes);
  if (is_reduction(a.collective)) c.kind = static_cast<ReduceKind>(k / kDataTypes % kReduceKinds);
  c.root = is_rooted(a.collective) ? static_cast<int>(k) % ranks : 0;
  c.in_place = has_in_place(a.collective) && k % 2 == 1;
  c.protocol = kProtocols[k / 2 % 3];
  c.copies = static_cast<std::uint32_t>(1 + k % 3);
  c.misalign = k % 5 == 0 ? 1 : 0;
  return c;
}

/// Whether case `k` is run: of those that TUTTI_TEST_EVERY divides, where only a sample is wanted.
inline bool is_sampled(std::size_t k) {
  const char* const text = std::getenv("TUTTI_TEST_EVERY");
  const std::uint64_t every = text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
  // Spread, as types and sizes follow from k.
  return every < 2 || (k * 0x9e3779b97f4a7c15ULL >> 32) % every == 0;
}

/// `protocol`: instead of each in turn.
inline void test_every_algorithm(DeviceRanks& all, std::span<const std::size_t> sizes,
                                 std::optional<device::Protocol> protocol = {}) {
  std::size_t k = 0;
  for (const Algorithm& a : algorithms()) {
    if (!runs_on_gpus(a)) continue;
    for (const std::size_t bytes : sizes) {
      if (!is_sampled(++k)) continue;
      DeviceCase c = nth(a, k, all.size());
      c.bytes = bytes;
      if (protocol) c.protocol = protocol;
      ASSERT_EQ(all.run(c), 0U) << c.text(all.size());
    }
  }
}

inline void test_every_type_and_operator(DeviceRanks& all, std::size_t bytes) {
  std::size_t k = 0;
  for (const char* name : {"ring", "two_shot_window", "one_shot"}) {
    for (int type = 0; type < kDataTypes; ++type) {
      for (int kind = 0; kind < kReduceKinds; ++kind) {
        DeviceCase c = nth(*find_algorithm(Collective::all_reduce, name), ++k, all.size());
        c.type = static_cast<DataType>(type);
        c.kind = static_cast<ReduceKind>(kind);
        c.bytes = bytes + k;
        ASSERT_EQ(all.run(c), 0U) << c.text(all.size());
      }
    }
  }
}

}  // namespace tutti::test
