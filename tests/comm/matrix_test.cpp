// The collective matrix with thread ranks: all collectives, types, operators and rank counts.
#include "tests/comm/matrix.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>

#include "collectives/algorithms.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

std::uint64_t expect_right(int ranks, const Options& options, const Matrix& matrix) {
  std::mutex mutex;
  std::uint64_t calls = 0;
  run_thread_ranks(ranks, options, [&](Communicator& c) {
    const Tally tally = run_matrix(c, matrix);
    const std::lock_guard lock(mutex);
    EXPECT_EQ(tally.wrong, 0U) << tally.first;
    calls += tally.calls;
  });
  return calls;
}

class Ranks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Matrix, Ranks, testing::Values(1, 2, 3, 4, 5, 7, 8));

TEST_P(Ranks, EveryTypeAndOperator) {
  Matrix matrix;
  const Options options;
  matrix.bytes = {0, 1, 2, 3, 7, 31, 47, 48, 49, 1000, 4095, 16385};
  fmt::print("{} calls\n", expect_right(GetParam(), options, matrix));
}

TEST_P(Ranks, EverySizeAroundBoundaries) {
  Matrix matrix;
  Options options;
  matrix.types = {DataType::int8, DataType::bfloat16, DataType::float64};
  matrix.kinds = {ReduceKind::sum};
  matrix.bytes = boundary_sizes(options);
  for (const bool window : {false, true}) {
    matrix.window_memory = window;
    matrix.misalign = window ? 0 : 1;
    expect_right(GetParam(), options, matrix);
  }
}

TEST_P(Ranks, ManyTilesThroughFewSmallSlots) {
  Matrix matrix;
  Options options;
  options.slots = 2;
  options.slot_bytes = 1024;
  matrix.types = {DataType::float32};
  matrix.kinds = {ReduceKind::sum, ReduceKind::pre_multiplied_sum};
  matrix.bytes = {1, 100, 1023, 1024, 1025, 2048, 5000, 40'000};
  expect_right(GetParam(), options, matrix);
}

TEST_P(Ranks, EveryAlgorithm) {
  for (const Algorithm& a : algorithms()) {
    if (a.collective == Collective::barrier || a.collective == Collective::send_recv) continue;
    if (a.compressed) continue;  // compressed_test
    SCOPED_TRACE(fmt::format("{} {}", name(a.collective), a.name));
    Matrix matrix;
    matrix.collectives = {a.collective};
    matrix.types = {DataType::float32, DataType::uint8};
    matrix.kinds = {ReduceKind::sum, ReduceKind::avg};
    matrix.bytes = {1, 64, 1000, 70'001, 300'000};
    Options options;
    options.algorithm = std::string(a.name);
    expect_right(GetParam(), options, matrix);
  }
}

TEST(Large, SixteenMebibytes) {
  Matrix matrix;
  matrix.types = {DataType::float32};
  matrix.kinds = {ReduceKind::sum};
  matrix.bytes = {std::size_t{16} << 20};
  expect_right(3, Options(), matrix);
}

}  // namespace
}  // namespace tutti::test
