// The distributed sampler: ranks see disjoint samples that cover the data set, in an order that
// seed and epoch decide, and go on in the middle of an epoch with any number of ranks.
#include "parallel/data/sampler.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "core/error.h"
#include "tests/support/thread_ranks.h"

namespace tutti::test {
namespace {

using namespace parallel;

std::vector<DistributedSampler> ranks_of(SamplerOptions options, int ranks) {
  std::vector<DistributedSampler> all;
  options.ranks = ranks;
  for (options.rank = 0; options.rank < ranks; ++options.rank) all.emplace_back(options);
  return all;
}

TEST(Sampler, AnEpochCoversTheSamplesOnce) {
  for (const std::size_t samples : {1U, 2U, 5U, 64U, 1000U}) {
    for (const int ranks : {1, 2, 3, 8}) {
      auto all = ranks_of({.samples = samples, .seed = 5, .tail = Tail::uneven}, ranks);
      for (std::uint64_t epoch = 0; epoch < 3; ++epoch) {
        std::vector<std::size_t> seen;
        for (DistributedSampler& s : all) {
          const std::size_t own = samples / static_cast<std::size_t>(ranks);
          std::size_t n = 0;
          if (epoch > 0 && own == 0) continue;  // a rank without samples has no epochs
          for (n = s.samples_of_epoch(); n > 0 && s.epoch() == epoch && s.left() > 0;) {
            seen.push_back(s.next());
          }
          s.go_to((epoch + 1) * samples);
        }
        if (epoch > 0 && samples < static_cast<std::size_t>(ranks)) continue;
        std::ranges::sort(seen);
        std::vector<std::size_t> expected(samples);
        std::iota(expected.begin(), expected.end(), 0);
        EXPECT_EQ(seen, expected) << samples << " samples, " << ranks << " ranks, epoch " << epoch;
      }
    }
  }
}

TEST(Sampler, TailsRepeatDropOrDiffer) {
  const auto count = [](Tail tail, int rank) {
    return DistributedSampler({.samples = 10, .ranks = 4, .rank = rank, .tail = tail})
        .samples_of_epoch();
  };
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(count(Tail::repeat, rank), 3U);
    EXPECT_EQ(count(Tail::drop, rank), 2U);
    EXPECT_EQ(count(Tail::uneven, rank), rank < 2 ? 3U : 2U);
  }
  // What is repeated is the beginning of the same epoch.
  auto all = ranks_of({.samples = 10, .shuffle = false}, 4);
  for (auto& s : all) (void)s.next(), (void)s.next();
  EXPECT_EQ(all[0].next(), 8U);
  EXPECT_EQ(all[1].next(), 9U);
  EXPECT_EQ(all[2].next(), 0U);
  EXPECT_EQ(all[3].next(), 1U);
  EXPECT_EQ(all[3].place(), 10U);
  EXPECT_EQ(all[3].next(), 3U);
  EXPECT_EQ(all[3].epoch(), 1U);
}

TEST(Sampler, SeedAndEpochDecideTheOrder) {
  const auto order = [](std::uint64_t seed, std::uint64_t epoch) {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < 1000; ++i) {
      all.push_back(DistributedSampler::permuted(i, 1000, seed, epoch));
    }
    return all;
  };
  EXPECT_EQ(order(1, 2), order(1, 2));
  EXPECT_NE(order(1, 2), order(2, 2));
  EXPECT_NE(order(1, 2), order(1, 3));
  // No order that one would notice: few stay in place, and neighbours part.
  const auto all = order(1, 2);
  int in_place = 0, neighbours = 0;
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    in_place += all[i] == i ? 1 : 0;
    neighbours += all[i + 1] == all[i] + 1 ? 1 : 0;
  }
  EXPECT_LT(in_place, 10);
  EXPECT_LT(neighbours, 10);
}

TEST(Sampler, AJobGoesOnInTheMiddleOfAnEpochWithAnyNumberOfRanks) {
  constexpr std::size_t kSamples = 101;
  for (const Tail tail : {Tail::repeat, Tail::drop, Tail::uneven}) {
    for (const int before : {1, 3, 4}) {
      for (const int after : {1, 2, 5}) {
        const SamplerOptions options{.samples = kSamples, .seed = 9, .tail = tail};
        std::multiset<std::size_t> seen;
        auto first = ranks_of(options, before);
        for (int step = 0; step < 11; ++step) {
          for (auto& s : first) seen.insert(s.next());
        }
        const std::uint64_t place = first[0].place();
        EXPECT_EQ(place, static_cast<std::uint64_t>(11 * before));
        auto second = ranks_of(options, after);
        for (auto& s : second) {
          s.go_to(place);
          EXPECT_EQ(s.place(), place);
          while (s.left() > 0) seen.insert(s.next());
        }
        const std::size_t left = kSamples - place, n = static_cast<std::size_t>(after);
        const std::size_t expected = tail == Tail::repeat ? place + (left + n - 1) / n * n
                                     : tail == Tail::drop ? place + left / n * n
                                                          : kSamples;
        EXPECT_EQ(seen.size(), expected);
        const std::set<std::size_t> different(seen.begin(), seen.end());
        EXPECT_EQ(different.size(), std::min(expected, kSamples));
      }
    }
  }
}

TEST(Sampler, WhatCannotBeIsRefused) {
  for (const SamplerOptions& options :
       {SamplerOptions{}, SamplerOptions{.samples = 5, .ranks = 2, .rank = 2},
        SamplerOptions{.samples = 5, .ranks = 0},
        SamplerOptions{.samples = 3, .ranks = 4, .tail = Tail::drop}}) {
    EXPECT_EQ(error_of([&] { DistributedSampler{options}; }).code(), ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace tutti::test
