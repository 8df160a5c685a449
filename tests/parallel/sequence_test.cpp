// A layer that is trained over a divided sequence, beside data, sharded and tensor parallelism,
// ends where one rank ends, and with the same bits in every run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "tests/parallel/sequence_model.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

using parallel::sequence::KeysTravel;
using parallel::sequence::SequenceOrder;

void expect_equal_to_one_rank(const SequenceCase& c) {
  const std::vector<double> alone = train_alone(c.causal, 5);
  std::vector<std::uint64_t> bits[2];
  double worst = 0;
  for (auto& of_run : bits) {
    of_run.resize(static_cast<std::size_t>(c.ranks()));
    std::mutex mutex;
    run_thread_ranks(c.ranks(), [&](Communicator& comm) {
      const TrainedSequence got = train_sequence(comm, c, alone);
      const std::lock_guard lock(mutex);
      of_run[static_cast<std::size_t>(comm.rank())] = got.bits;
      worst = std::max(worst, got.worst);
    });
  }
  EXPECT_LE(worst, 1e-10) << c.text();
  EXPECT_EQ(bits[0], bits[1]) << c.text();
  // All that are not tensor parallel have the same weights.
  if (c.tp == 1) {
    for (const std::uint64_t b : bits[0]) EXPECT_EQ(b, bits[0][0]) << c.text();
  }
  fmt::print("{}: {:.1e}\n", c.text(), worst);
}

TEST(Sequence, TheWeightsOfOneRankChange) {
  const auto start = train_alone(true, 0), end = train_alone(true, 5), full = train_alone(false, 5);
  double moved = 0, other = 0;
  for (std::size_t i = 0; i < start.size(); ++i) {
    moved = std::max(moved, std::abs(end[i] - start[i]));
    other = std::max(other, std::abs(end[i] - full[i]));
  }
  EXPECT_GT(moved, 0.05);  // otherwise all of the tests below prove nothing
  EXPECT_GT(other, 0.01);
}

TEST(Sequence, EachWayEndsWhereOneRankEnds) {
  for (const bool causal : {false, true}) {
    expect_equal_to_one_rank({.heads = 3, .causal = causal});
    expect_equal_to_one_rank({.ring = 4, .causal = causal});
    expect_equal_to_one_rank({.ring = 4, .order = SequenceOrder::zigzag, .causal = causal});
    expect_equal_to_one_rank({.ring = 4, .keys = KeysTravel::all_gather, .causal = causal});
    expect_equal_to_one_rank(
        {.heads = 2, .ring = 2, .order = SequenceOrder::zigzag, .causal = causal});
  }
}

TEST(Sequence, MixturesOfEightRanksEndWhereOneRankEnds) {
  expect_equal_to_one_rank({.dp = 2, .heads = 2, .ring = 2, .order = SequenceOrder::zigzag});
  expect_equal_to_one_rank({.dp = 2, .ring = 4, .order = SequenceOrder::zigzag, .sharded = true});
  expect_equal_to_one_rank({.tp = 2, .heads = 2, .ring = 2, .order = SequenceOrder::zigzag});
  expect_equal_to_one_rank({.tp = 2, .ring = 4, .keys = KeysTravel::all_gather, .sharded = true});
  expect_equal_to_one_rank({.dp = 2, .tp = 2, .ring = 2, .causal = false, .sharded = true});
  expect_equal_to_one_rank({.heads = 8, .sharded = true});
  expect_equal_to_one_rank({.tp = 2, .ring = 4, .order = SequenceOrder::zigzag, .slices = true});
}

}  // namespace
}  // namespace tutti::test
