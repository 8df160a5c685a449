// The places of gradients: buckets side by side in a flat buffer, in the order of sending. One
// average covers a whole bucket. This is arithmetic alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "policy.h"

namespace tutti::parallel {

struct Bucket {
  DataType type{};                       // of all its gradients
  std::size_t offset = 0;                // in the flat buffer, in bytes
  std::size_t count = 0;                 // elements
  std::vector<std::uint32_t> gradients;  // one behind the other, without gaps
};

struct BucketLayout {
  std::vector<Bucket> buckets;           // in the order in which they are sent
  std::vector<std::uint32_t> bucket_of;  // by gradient
  std::vector<std::size_t> offset_of;    // by gradient: in the flat buffer, in bytes
  std::size_t bytes = 0;                 // of the flat buffer
};

/// Fills buckets with gradients in `order` (each index once) until the next gradient would exceed
/// the policy's bytes: only a larger gradient has a larger bucket. One bucket for each type is open
/// at a time. Buckets begin at multiples of kBucketAlignment.
BucketLayout lay_out(std::span<const Parameter> parameters, std::span<const std::uint32_t> order,
                     const DataParallelPolicy& policy);

inline constexpr std::size_t kBucketAlignment = 128;

}  // namespace tutti::parallel
