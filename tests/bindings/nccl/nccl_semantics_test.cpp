// The table of docs/semantics.md through NCCL's interface: the same numbers, and where this
// interface has rules of its own.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "bindings/nccl/nccl.h"
#include "tests/bindings/nccl/ranks.h"

namespace tutti::test {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

float reduced(float mine, ncclRedOp_t op, ncclComm_t comm) {
  float out = -77;
  expect_success(ncclAllReduce(&mine, &out, 1, ncclFloat32, op, comm, nullptr));
  return out;
}

// semantics.md: P6, N1, N2, N3, N8
TEST(SemanticsNccl, NumbersAreThoseOfTheTable) {
  run_ranks(3, [](int rank, ncclComm_t& comm) {
    for (int odd = 0; odd < 3; ++odd) {
      const float mine = rank == odd ? kNaN : static_cast<float>(1 + rank);
      for (const ncclRedOp_t op : {ncclMax, ncclMin, ncclSum, ncclProd, ncclAvg}) {
        EXPECT_TRUE(std::isnan(reduced(mine, op, comm))) << rank << ", " << op;
      }
      const float zero = rank == odd ? 0.0F : -0.0F;
      EXPECT_TRUE(std::signbit(reduced(zero, ncclMin, comm)));
      EXPECT_FALSE(std::signbit(reduced(zero, ncclMax, comm)));
      EXPECT_FALSE(std::signbit(reduced(zero, ncclSum, comm)));
      EXPECT_TRUE(std::signbit(reduced(-0.0F, ncclSum, comm)));
    }
    std::int8_t hundred = 100;
    std::int8_t average = 0;
    expect_success(ncclAllReduce(&hundred, &average, 1, ncclInt8, ncclAvg, comm, nullptr));
    EXPECT_EQ(average, 14);
    std::int32_t x = rank == 0 ? -7 : 0;
    expect_success(ncclAllReduce(&x, &x, 1, ncclInt32, ncclAvg, comm, nullptr));
    EXPECT_EQ(x, -2);  // -7 / 3, towards zero
  });
}

// semantics.md: P6, C1, C3
TEST(SemanticsNccl, HasNcclsRulesForBuffersAndCounts) {
  run_ranks(2, [](int rank, ncclComm_t& comm) {
    // In place, where Tutti's own all_to_all has no such form.
    std::vector<std::int32_t> x{10 * rank, 10 * rank + 1};
    expect_success(ncclAlltoAll(x.data(), x.data(), 1, ncclInt32, comm, nullptr));
    EXPECT_EQ(x, (std::vector<std::int32_t>{rank, 10 + rank}));
    EXPECT_EQ(ncclAllReduce(x.data(), x.data() + 1, 2, ncclInt32, ncclSum, comm, nullptr),
              ncclInvalidArgument);
    // Of nothing.
    expect_success(ncclAllReduce(nullptr, nullptr, 0, ncclInt32, ncclSum, comm, nullptr));
    std::int32_t one = 1;
    expect_success(sum_in_place(one, comm));
    EXPECT_EQ(one, 2);
  });
}

// semantics.md: P6, C8
TEST(SemanticsNccl, CallsThatDoNotMatchAreInvalidUsageOnAllRanks) {
  run_ranks(2, [](int rank, ncclComm_t& comm) {
    std::vector<float> x(4), y(4);
    ncclResult_t result =
        ncclAllReduce(x.data(), y.data(), rank == 0 ? 3 : 4, ncclFloat32, ncclSum, comm, nullptr);
    if (result == ncclSuccess) {
      result = ncclAllReduce(x.data(), y.data(), 4, ncclFloat32, ncclSum, comm, nullptr);
    }
    EXPECT_EQ(result, ncclInvalidUsage) << rank;
  });
}

}  // namespace
}  // namespace tutti::test
