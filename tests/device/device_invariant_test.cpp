// Invariant bits on GPU memory, with threads in the GPU's place: the bits of the canonical
// expression, which host memory has too (tests/comm/invariant_bits_test.cpp), by every algorithm
// that the communicator chooses, type and operator.
#include <gtest/gtest.h>

#include "tests/comm/invariant_cases.h"
#include "tests/device/device_memory.h"

namespace tutti::test {
namespace {

class DeviceInvariant : public OnDeviceMemory {
 protected:
  static void expect_canonical(int n, const Options& options, InvariantCases cases) {
    cases.run = [](Communicator& c, const Call& call) { c.run(call, stream(c.rank())); };
    auto all = ranks(n, options);
    in_threads(all, [&](Communicator& c) {
      const InvariantTally tally = run_invariant_cases(c, cases);
      EXPECT_GT(tally.cases, 0U);
      EXPECT_EQ(tally.wrong, 0U) << tally.first;
    });
    EXPECT_GT(the_device->launches, 0);
  }
  static Options invariant() {
    Options options;
    options.invariant = true;
    return options;
  }
};

TEST_P(DeviceInvariant, HasTheBitsOfTheCanonicalExpression) {
  InvariantCases cases;
  cases.counts = {1, 33, 1013};
  const auto n = static_cast<std::size_t>(GetParam());
  if (n > 4) cases.types = {cases.types[n % 6], cases.types[(n + 1) % 6]};
  expect_canonical(GetParam(), invariant(), cases);
}

INSTANTIATE_TEST_SUITE_P(Ranks, DeviceInvariant, ::testing::Values(1, 2, 3, 4, 5, 6, 8, 11, 16));

}  // namespace
}  // namespace tutti::test
