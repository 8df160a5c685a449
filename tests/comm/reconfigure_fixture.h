// What tests of communicators that change their ranks share. Ranks are threads here, which share
// memory, or are kept apart as processes of a host or as hosts; elastic_test.cpp has processes that
// die.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "core/error.h"
#include "tests/support/variable.h"

namespace tutti::test {

enum class Kept { together, apart, hosts };

class Reconfigure : public testing::TestWithParam<Kept> {
 protected:
  /// A rank of the tests: its newest communicator, and its newest error.
  struct Rank {
    Communicator comm;
    std::optional<Error> error;
  };

  void SetUp() override {
    if (GetParam() == Kept::apart) apart_.emplace("TUTTI_APART", "1");
  }

  Options options(int rank, std::chrono::nanoseconds timeout = std::chrono::seconds(20)) const {
    Options o;
    o.rendezvous_timeout = timeout;
    o.timeout = std::chrono::seconds(20);
    if (GetParam() == Kept::hosts) o.host_id = "host " + std::to_string(rank);
    return o;
  }
  /// So many ranks more, each alone.
  void start(int count) {
    for (int i = 0; i < count; ++i) {
      ranks_.push_back(std::make_unique<Rank>());
      ranks_.back()->comm = Communicator::alone(options(static_cast<int>(ranks_.size()) - 1));
    }
  }
  Rank& rank(int r) { return *ranks_[static_cast<std::size_t>(r)]; }

  /// Runs `body` for these ranks, side by side; what it throws is the rank's error.
  void for_each(const std::vector<int>& who, const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (const int r : who) {
      threads.emplace_back([&, r] {
        rank(r).error.reset();
        try {
          body(r);
        } catch (const Error& e) {
          rank(r).error = e;
        }
      });
    }
    for (std::thread& t : threads) t.join();
  }
  std::vector<std::string> handles(const std::vector<int>& who) {
    std::vector<std::string> all;
    for (const int r : who) all.push_back(rank(r).comm.handle());
    return all;
  }
  void reconfigure_to(int r, const std::vector<std::string>& list, std::uint64_t number,
                      std::chrono::nanoseconds timeout = std::chrono::seconds(20)) {
    rank(r).comm = rank(r).comm.reconfigure(list, number, options(r, timeout));
  }
  /// These ranks form the next communicator, in this order, and move data over it.
  void form(const std::vector<int>& who, std::uint64_t number) {
    const auto list = handles(who);
    for_each(who, [&](int r) { reconfigure_to(r, list, number); });
    for (const int r : who) ASSERT_FALSE(rank(r).error) << r << ": " << rank(r).error->what();
    expect_right(who);
  }
  /// The ranks `who` are a communicator that works.
  void expect_right(const std::vector<int>& who) {
    for_each(who, [&](int r) {
      Communicator& comm = rank(r).comm;
      const auto own = static_cast<std::size_t>(comm.rank());
      EXPECT_EQ(comm.size(), static_cast<int>(who.size()));
      EXPECT_EQ(who[own], r);
      for (const std::size_t count : {1UL, 1000UL, 100'000UL}) {
        std::vector<std::int64_t> numbers(count);
        for (std::size_t i = 0; i < count; ++i) {
          numbers[i] = static_cast<std::int64_t>(i) + 7 * (r + 1);
        }
        comm.all_reduce(numbers);
        std::int64_t ranks = 0;
        for (const int other : who) ranks += 7 * (other + 1);
        for (std::size_t i = 0; i < count; ++i) {
          const auto right = static_cast<std::int64_t>(i * who.size()) + ranks;
          ASSERT_EQ(numbers[i], right) << "rank " << own << " at " << i << " of " << count;
        }
      }
    });
    for (const int r : who) ASSERT_FALSE(rank(r).error) << r << ": " << rank(r).error->what();
  }

  std::optional<test::Variable> apart_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace tutti::test
