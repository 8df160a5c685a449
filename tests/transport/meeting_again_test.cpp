// Ranks of a host meet again after meetings that failed, however far each of them had come: both
// ends of each pair go by the same meeting, and know the same windows of each other. Threads stand
// for processes here (TUTTI_APART).
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/memory.h"
#include "core/window_memory.h"
#include "tests/support/variable.h"
#include "transport/host/host_peers.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kWindowBytes = 8192;

/// A rank, with the windows that it has.
struct Rank {
  explicit Rank(int id) : name(id) {}
  ~Rank() {
    for (std::byte* window : windows) deallocate(window);
  }
  Rank(const Rank&) = delete;
  Rank& operator=(const Rank&) = delete;

  const int name;
  HostPeers peers;
  std::vector<std::byte*> windows;
  std::vector<int> numbers;  // of the ranks of the newest meeting that it has met
  std::optional<Error> error;
};

class MeetingAgain : public testing::Test {
 protected:
  void start(int count) {
    for (int i = 0; i < count; ++i) ranks_.push_back(std::make_unique<Rank>(i));
  }
  Rank& rank(int r) { return *ranks_[static_cast<std::size_t>(r)]; }

  struct Meeting {
    std::vector<int> who;
    std::uint64_t id = 0;
    std::vector<HostPeerAddress> addresses;
    protocol::Bytes32 secret{};
    int place_of(int r) const { return static_cast<int>(std::ranges::find(who, r) - who.begin()); }
  };
  /// All of them say where they can be found.
  Meeting call(std::vector<int> who) {
    Meeting m{std::move(who), next_id_++, {}, {}};
    protocol::fill_random(m.secret);
    for (const int r : m.who) m.addresses.push_back(rank(r).peers.listen());
    return m;
  }
  /// Whether rank `r` has met the others of `m`.
  bool meet(const Meeting& m, int r, std::chrono::nanoseconds timeout = 20s) {
    rank(r).error.reset();
    try {
      rank(r).numbers =
          rank(r).peers.meet(m.place_of(r), m.addresses, m.id, m.secret, deadline_after(timeout));
      return true;
    } catch (const Error& error) {
      rank(r).error = error;
      return false;
    }
  }
  void side_by_side(const std::vector<int>& who, const std::function<void(int)>& body) {
    std::vector<std::thread> threads;
    for (const int r : who) threads.emplace_back(body, r);
    for (std::thread& t : threads) t.join();
  }

  /// The ranks of `m`, which have met, see that all are there, and find all windows of each other.
  void expect_together(const Meeting& m) {
    for (const int r : m.who) {
      ASSERT_FALSE(rank(r).error) << "rank " << r << ": " << rank(r).error->what();
      rank(r).windows.push_back(static_cast<std::byte*>(allocate(kWindowBytes)));
    }
    for (const int r : m.who) {
      // As a call would: each is told of what it may not know yet.
      for (std::byte* const memory : rank(r).windows) {
        rank(r).peers.announce(find_window(memory, kWindowBytes), rank(r).numbers);
      }
    }
    for (const int r : m.who) {
      EXPECT_TRUE(rank(r).peers.ending_peers().empty()) << "rank " << r << " of meeting " << m.id;
      for (const int other : m.who) {
        if (other == r) continue;
        const int number = rank(r).numbers[static_cast<std::size_t>(m.place_of(other))];
        for (std::byte* const memory : rank(other).windows) {
          EXPECT_TRUE(finds(r, number, find_window(memory, kWindowBytes).id))
              << "rank " << r << " has not heard of a window of rank " << other << ", meeting "
              << m.id;
        }
      }
    }
  }
  bool finds(int r, int number, std::uint32_t window) {
    for (const auto end = Clock::now() + 2s; Clock::now() < end;) {
      if (rank(r).peers.find_window(number, window)) return true;
      for (const auto& each : ranks_) {
        if (each) each->peers.drain();  // it may have had no room for what it says
      }
    }
    return false;
  }

  test::Variable apart_{"TUTTI_APART", "1"};
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::uint64_t next_id_ = 100;
};

// Rank 3 dies in the second meeting. Ranks 0 and 2 hear of it, and give up, before rank 1 has met
// anybody there.
TEST_F(MeetingAgain, ARankThatComesWhenTheOthersHaveGivenUpHearsOfThatAndMeetsThemAgain) {
  start(4);
  for (int round = 0; round < 3; ++round) {
    const Meeting first = call({0, 1, 2});
    side_by_side(first.who, [&](int r) { meet(first, r); });
    ASSERT_NO_FATAL_FAILURE(expect_together(first));
    for (const int r : first.who) rank(r).peers.hold(rank(r).numbers);
    const std::vector<std::vector<int>> held{rank(0).numbers, rank(1).numbers, rank(2).numbers};

    const Meeting second = call({0, 1, 2, 3});
    const std::uint64_t dead = rank(3).peers.identity();
    ranks_[3].reset();
    for (const int r : {0, 2}) ASSERT_TRUE(meet(second, r)) << rank(r).error->what();
    for (const int r : {0, 2}) rank(r).peers.give_up(second.id, dead);
    EXPECT_FALSE(meet(second, 1));
    ASSERT_TRUE(rank(1).error);
    EXPECT_EQ(rank(1).error->code(), ErrorCode::peer_lost) << rank(1).error->what();
    EXPECT_EQ(rank(1).error->rank(), 3) << rank(1).error->what();
    rank(1).peers.give_up(second.id, dead);

    for (const int r : {0, 1, 2}) {
      EXPECT_TRUE(rank(r).peers.ending_peers().empty()) << r;
      rank(r).numbers = held[static_cast<std::size_t>(r)];
      rank(r).error.reset();
    }
    ASSERT_NO_FATAL_FAILURE(expect_together(first)) << "what there was before goes on";
    const Meeting third = call({1, 0, 2});
    side_by_side(third.who, [&](int r) { meet(third, r); });
    ASSERT_NO_FATAL_FAILURE(expect_together(third));
    for (const int r : {0, 1, 2}) rank(r).peers.let_go(held[static_cast<std::size_t>(r)]);
    ranks_[3] = std::make_unique<Rank>(3);
  }
}

// Ranks come late or not at all, give up early, are not called: after each such meeting all meet.
TEST_F(MeetingAgain, WhateverHasFailedBefore) {
  constexpr int kRanks = 5, kCycles = 60;
  start(kRanks);
  std::vector<int> all(kRanks);
  std::iota(all.begin(), all.end(), 0);
  std::mt19937 random(static_cast<unsigned>(test::number_from("TUTTI_SEED", 1)));
  const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  int failed = 0;
  for (int cycle = 0; cycle < kCycles; ++cycle) {
    const Meeting whole = call(all);
    side_by_side(all, [&](int r) { meet(whole, r); });
    ASSERT_NO_FATAL_FAILURE(expect_together(whole)) << "cycle " << cycle;
    std::vector<std::vector<int>> held(kRanks);
    const bool holds = below(2) == 0;
    for (const int r : all) {
      held[static_cast<std::size_t>(r)] = rank(r).numbers;
      if (holds) rank(r).peers.hold(rank(r).numbers);
    }
    for (int again = 0; again < 1 + below(3); ++again) {
      std::vector<int> some = all;
      std::ranges::shuffle(some, random);
      some.resize(static_cast<std::size_t>(2 + below(kRanks - 1)));
      const Meeting m = call(some);
      const int absent = below(3) == 0 ? some[static_cast<std::size_t>(below(2))] : -1;
      std::array<std::chrono::microseconds, kRanks> late{}, patience{};
      for (const int r : some) {
        late[static_cast<std::size_t>(r)] = std::chrono::microseconds(below(2) * below(30'000));
        patience[static_cast<std::size_t>(r)] = std::chrono::microseconds(1 + below(20'000));
      }
      // Those that have met give up when they hear that one has not, while others are on their way.
      std::atomic<int> met{0}, lost{0};
      side_by_side(some, [&](int r) {
        const auto at = static_cast<std::size_t>(r);
        std::this_thread::sleep_for(late[at]);
        if (r != absent && meet(m, r, patience[at])) {
          ++met;
          while (lost == 0 && met < static_cast<int>(some.size())) std::this_thread::yield();
          if (lost == 0) return;
        }
        ++lost;
        rank(r).peers.give_up(m.id, 0);
      });
      failed += lost > 0 ? 1 : 0;
    }
    if (!holds) continue;
    // The communicator that there was goes on.
    for (const int r : all) {
      rank(r).numbers = held[static_cast<std::size_t>(r)];
      rank(r).error.reset();
    }
    ASSERT_NO_FATAL_FAILURE(expect_together(whole)) << "cycle " << cycle;
    for (const int r : all) rank(r).peers.let_go(held[static_cast<std::size_t>(r)]);
  }
  EXPECT_GT(failed, kCycles / 4) << "hardly any meeting has failed: this tests nothing";
}

}  // namespace
}  // namespace tutti
