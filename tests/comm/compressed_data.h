// What the tests of compressed calls share: inputs that are hard to compress, and comparisons.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "collectives/collective.h"
#include "core/compressed.h"
#include "core/convert.h"
#include "core/types.h"

namespace tutti::test {

using Bytes = std::vector<std::uint8_t>;

inline constexpr DataType kTypes[] = {DataType::bfloat16, DataType::float16, DataType::float32};

inline Bytes stored(DataType type, const std::vector<float>& values) {
  Bytes bytes(values.size() * size_of(type));
  convert(values.data(), DataType::float32, bytes.data(), type, values.size());
  return bytes;
}
inline std::vector<float> widened(DataType type, const Bytes& bytes) {
  std::vector<float> values(bytes.size() / size_of(type));
  convert(bytes.data(), type, values.data(), DataType::float32, values.size());
  return values;
}

/// Of blocks that are hard to compress, and others; differs by rank and position.
inline Bytes input(DataType type, std::size_t count, int rank, bool finite) {
  std::mt19937 random(static_cast<std::uint32_t>(rank + 1));
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t block = i / 32 % 8;
    float v = normal(random);
    if (block == 1) v = 0;
    if (block == 2) v = i % 32 == 7 ? 30000.0f : v * 1e-3f;  // one that is huge
    if (block == 3) v *= 1e-38f;
    if (block == 4 && !finite) {
      if (i % 32 == static_cast<std::size_t>(rank)) v = std::numeric_limits<float>::infinity();
      if (i % 32 == 20) v = rank % 2 == 0 ? -INFINITY : INFINITY;
      if (i % 32 == 25 && rank == 1) v = NAN;
    }
    values.push_back(v);
  }
  return stored(type, values);
}

inline ReduceOp op_of(ReduceKind kind, DataType type, int rank) {
  return kind == ReduceKind::pre_multiplied_sum
             ? ReduceOp::pre_multiplied_sum(type, 0.75 + 0.5 * rank)
             : ReduceOp(kind);
}

/// NaNs are alike; else bits count.
inline void expect_same(DataType type, const Bytes& found, const Bytes& wanted,
                        const std::string& what) {
  if (found == wanted) return;
  const auto a = widened(type, found), b = widened(type, wanted);
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) && std::isnan(b[i])) continue;
    ASSERT_EQ(a[i], b[i]) << what << ", element " << i;
  }
}

/// Each element of `found` is within the error of compression, and of what else rounds, of the
/// exact sum of `all`. `error(inputs, found)`: both, for the largest magnitudes of a block, summed
/// over the ranks.
template <class Error>
void expect_close_to_sum(DataType type, const std::vector<float>& found,
                         const std::vector<std::vector<float>>& all, const Error& error) {
  const std::size_t block = compressed_block(type);
  for (std::size_t at = 0; at < found.size(); at += block) {
    const std::size_t end = std::min(at + block, found.size());
    double inputs = 0;
    for (const auto& values : all) {
      double most = 0;
      for (std::size_t i = at; i < end; ++i) most = std::max(most, std::fabs(double{values[i]}));
      inputs += most;
    }
    for (std::size_t i = at; i < end; ++i) {
      double exact = 0;
      for (const auto& values : all) exact += double{values[i]};
      ASSERT_LE(std::fabs(double{found[i]} - exact), error(inputs, found[i]))
          << name(type) << " " << i << " of " << all.size() << " ranks";
    }
  }
}

}  // namespace tutti::test
