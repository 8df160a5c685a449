// The distributed sampler: ranks see disjoint samples that cover the data set, in an order that
// seed and epoch decide, and go on in the middle of an epoch with any number of ranks.
#include "parallel/data/sampler.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <string>
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

TEST(Sampler, ARankWithoutSamplesIsToldSo) {
  for (const std::size_t samples : {1U, 3U}) {
    for (auto& s : ranks_of({.samples = samples, .tail = Tail::uneven}, 5)) {
      const bool has_one = s.left() > 0;
      if (has_one) {
        (void)s.next();
        (void)s.next();  // of the next epoch
        EXPECT_EQ(s.epoch(), 1U);
      } else {
        const Error e = error_of([&] { (void)s.next(); });
        EXPECT_EQ(e.code(), ErrorCode::invalid_usage);
        EXPECT_NE(std::string(e.what()).find("has none of the"), std::string::npos) << e.what();
      }
    }
  }
}

// By the chi-square of all orders of few samples: with k orders it is k - 1 on average, and 6
// deviations of the square root of 2 (k - 1) above that hardly ever.
TEST(Sampler, AllOrdersOfFewSamplesAreEquallyLikely) {
  for (const std::size_t samples : {2U, 3U, 4U, 5U}) {
    constexpr double kOfEach = 250;
    double orders = 1;
    for (std::size_t i = 2; i <= samples; ++i) orders *= static_cast<double>(i);
    std::map<std::vector<std::size_t>, int> found;
    for (std::uint64_t epoch = 0; epoch < static_cast<std::uint64_t>(kOfEach * orders); ++epoch) {
      std::vector<std::size_t> order;
      for (std::size_t i = 0; i < samples; ++i) {
        order.push_back(DistributedSampler::permuted(i, samples, 77, epoch));
      }
      ++found[order];
    }
    EXPECT_EQ(static_cast<double>(found.size()), orders);
    double chi_square = 0;
    for (const auto& [order, times] : found) {
      chi_square += (times - kOfEach) * (times - kOfEach) / kOfEach;
    }
    EXPECT_LT(chi_square, orders - 1 + 6 * std::sqrt(2 * (orders - 1))) << samples << " samples";
  }
}

TEST(Sampler, NeighboursAreNeighboursAfterwardsByChanceAlone) {
  for (const std::size_t samples :
       {16U, 64U, 100U, 256U, 512U, 1000U, 1024U, 1025U, 2000U, 4096U}) {
    const std::size_t epochs = std::min<std::size_t>(20'000, 300'000 / samples + 200);
    double after = 0, before = 0, in_place = 0;
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
      std::size_t last = samples;
      for (std::size_t i = 0; i < samples; ++i) {
        const std::size_t now = DistributedSampler::permuted(i, samples, 5, epoch);
        after += i > 0 && now == last + 1 ? 1 : 0;
        before += i > 0 && now + 1 == last ? 1 : 0;
        in_place += now == i ? 1 : 0;
        last = now;
      }
    }
    // Each of them about once in an order, independently.
    const auto n = static_cast<double>(samples), times = static_cast<double>(epochs);
    const double expected = times * (n - 1) / n;
    EXPECT_NEAR(after, expected, 5 * std::sqrt(times)) << samples << " samples";
    EXPECT_NEAR(before, expected, 5 * std::sqrt(times)) << samples << " samples";
    EXPECT_NEAR(in_place, times, 5 * std::sqrt(times)) << samples << " samples";
  }
}

// A place that a job has saved means the same sample in all versions.
TEST(Sampler, AnOrderStaysAsItIs) {
  const auto first = [](std::size_t samples, SampleOrder order) {
    std::vector<std::size_t> all;
    for (std::size_t i = 0; i < 6; ++i) {
      all.push_back(DistributedSampler::permuted(i, samples, 9, 2, order));
    }
    return all;
  };
  using Order = std::vector<std::size_t>;
  EXPECT_EQ(first(13, SampleOrder::four_rounds), (Order{8, 0, 5, 7, 11, 10}));
  EXPECT_EQ(first(1025, SampleOrder::four_rounds), (Order{807, 942, 915, 154, 693, 513}));
  EXPECT_EQ(
      first(1'000'000'000'000, SampleOrder::four_rounds),
      (Order{573008241690, 747512309668, 310180643749, 565605843964, 154190462681, 367983615540}));
  EXPECT_EQ(first(13, SampleOrder::uniform), (Order{12, 1, 11, 6, 10, 3}));
  EXPECT_EQ(first(256, SampleOrder::uniform), (Order{206, 121, 246, 20, 245, 41}));
  EXPECT_EQ(first(1025, SampleOrder::uniform), (Order{711, 714, 6, 143, 856, 547}));
  EXPECT_EQ(
      first(1'000'000'000'000, SampleOrder::uniform),
      (Order{31574427039, 565247568910, 347541404202, 646512284470, 764107828729, 634741252039}));
  // A sampler goes on in the order that it is given.
  DistributedSampler old({.samples = 13, .seed = 9, .order = SampleOrder::four_rounds});
  old.go_to(2 * 13 + 3);
  EXPECT_EQ(old.next(), 7U);
  DistributedSampler present({.samples = 13, .seed = 9});
  present.go_to(2 * 13 + 3);
  EXPECT_EQ(present.next(), 6U);
}

TEST(Sampler, EachOrderHasEachSampleOnce) {
  for (const SampleOrder order : {SampleOrder::four_rounds, SampleOrder::uniform}) {
    for (const std::size_t samples : {1U, 2U, 3U, 16U, 17U, 255U, 256U, 257U, 1024U, 5000U}) {
      std::vector<bool> seen(samples);
      for (std::size_t i = 0; i < samples; ++i) {
        const std::size_t sample = DistributedSampler::permuted(i, samples, 3, 8, order);
        ASSERT_LT(sample, samples);
        EXPECT_FALSE(seen[sample]) << sample << " of " << samples;
        seen[sample] = true;
      }
    }
  }
}

}  // namespace
}  // namespace tutti::test
