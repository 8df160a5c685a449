// Communicators that change their ranks: which ranks are in the next one, what becomes of the old
// one, and what each rank hears when it does not come to be. Ranks are threads here, which share
// memory, or are kept apart as processes of a host or as hosts; elastic_test.cpp has processes that
// die.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/handle.h"
#include "comm/communicator.h"
#include "tests/support/contains.h"
#include "tests/support/variable.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

enum class Kept { together, apart, hosts };

std::string name_of(const testing::TestParamInfo<Kept>& info) {
  switch (info.param) {
    case Kept::together:
      return "Threads";
    case Kept::apart:
      return "Apart";
    case Kept::hosts:
      return "Hosts";
  }
  return "";
}

/// A rank of the tests: its newest communicator, and its newest error.
struct Rank {
  Communicator comm;
  std::optional<Error> error;
};

class Reconfigure : public testing::TestWithParam<Kept> {
 protected:
  void SetUp() override {
    if (GetParam() == Kept::apart) apart_.emplace("TUTTI_APART", "1");
  }

  Options options(int rank, std::chrono::nanoseconds timeout = 20s) const {
    Options o;
    o.rendezvous_timeout = timeout;
    o.timeout = 20s;
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
                      std::chrono::nanoseconds timeout = 20s) {
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
INSTANTIATE_TEST_SUITE_P(, Reconfigure, testing::Values(Kept::together, Kept::apart, Kept::hosts),
                         name_of);

// --- Who is in it --------------------------------------------------------------------------------

TEST_P(Reconfigure, RanksThatHaveNeverMetFormACommunicator) {
  start(3);
  form({0, 1, 2}, 1);
}

TEST_P(Reconfigure, RanksLeaveComeAndChangePlaces) {
  start(3);
  form({0, 1, 2}, 11);
  form({2, 0}, 12);
  form({1, 2, 0}, 13);
  start(1);
  form({3, 1, 0, 2}, 14);
  form({3}, 15);
  form({0, 1, 2}, 16);
  form({0, 1, 2, 3}, 17);
}

TEST_P(Reconfigure, TwoHalvesGoTheirWaysAtOnceAndMeetAgain) {
  start(4);
  form({0, 1, 2, 3}, 1);
  const auto left = handles({0, 2}), right = handles({3, 1});
  for_each({0, 1, 2, 3}, [&](int r) { reconfigure_to(r, r % 2 == 0 ? left : right, 2); });
  expect_right({0, 2});
  expect_right({3, 1});
  form({1, 0, 3, 2}, 3);
}

TEST_P(Reconfigure, MembersOfACreatedCommunicatorTakeInANewcomer) {
  const UniqueId id = make_unique_id();
  for (int r = 0; r < 2; ++r) ranks_.push_back(std::make_unique<Rank>());
  for_each({0, 1}, [&](int r) { rank(r).comm = Communicator::create(id, r, 2, options(r)); });
  expect_right({0, 1});
  start(1);
  form({0, 1, 2}, 5);
  form({2, 1}, 6);
}

TEST_P(Reconfigure, ARankThatComesLateIsWaitedFor) {
  start(2);
  const auto list = handles({0, 1});
  for_each({0, 1}, [&](int r) {
    std::this_thread::sleep_for(r * 300ms);
    reconfigure_to(r, list, 1);
  });
  expect_right({0, 1});
  const auto back = handles({1, 0});
  for_each({0, 1}, [&](int r) {
    std::this_thread::sleep_for(r * 300ms);  // now the first one is late
    reconfigure_to(r, back, 2);
  });
  expect_right({1, 0});
}

TEST_P(Reconfigure, ManyTimesLeavesNothingBehind) {
  start(3);
  form({0, 1, 2}, 1);
  const auto descriptors = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  long before = 0;
  for (std::uint64_t n = 2; n < 42; n += 2) {
    form({0, 2}, n);
    form({2, 1, 0}, n + 1);
    if (n == 6) before = descriptors();
  }
  EXPECT_LE(descriptors(), before + 3);
}

// --- What becomes of the old one -----------------------------------------------------------------

TEST_P(Reconfigure, CallsUnderWayOnTheOldOneEnd) {
  start(2);
  form({0, 1}, 1);
  std::vector<float> never(4);
  Future pending = rank(0).comm.start({.collective = Collective::send_recv,
                                       .out = never.data(),
                                       .count = never.size(),
                                       .type = DataType::float32,
                                       .peer = 1});
  Communicator old = std::move(rank(0).comm);
  const std::vector<std::string> list{old.handle(), rank(1).comm.handle()};
  for_each({0, 1}, [&](int r) {
    Communicator& own = r == 0 ? old : rank(r).comm;
    Communicator next = own.reconfigure(list, 2, options(r));
    rank(r).comm = std::move(next);
  });
  expect_right({0, 1});
  EXPECT_THROW(pending.wait_for(5s), Error);
  ASSERT_TRUE(pending.error());
  EXPECT_EQ(pending.error()->code(), ErrorCode::aborted);
  EXPECT_TRUE(test::contains(pending.error()->what(), "was reconfigured"));
  try {
    old.barrier();
    FAIL() << "the old communicator still works";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::aborted);
    EXPECT_TRUE(test::contains(e.what(), "was reconfigured"));
  }
}

TEST_P(Reconfigure, AnAbortedCommunicatorIsAsGoodAsAnother) {
  start(3);
  form({0, 1, 2}, 1);
  for (int r = 0; r < 3; ++r) rank(r).comm.abort("test");
  form({0, 1, 2}, 2);
}

TEST_P(Reconfigure, CommunicatorsMadeFromTheOldOneGoOn) {
  start(2);
  form({0, 1}, 1);
  std::vector<Communicator> copies(2);
  for_each({0, 1}, [&](int r) {
    copies[static_cast<std::size_t>(r)] = rank(r).comm.split(0, r, options(r));
  });
  form({1, 0}, 2);
  for_each({0, 1}, [&](int r) {
    std::vector<int> one{1};
    copies[static_cast<std::size_t>(r)].all_reduce(one);
    EXPECT_EQ(one[0], 2);
  });
  EXPECT_FALSE(rank(0).error || rank(1).error);
}

// --- What is refused -----------------------------------------------------------------------------

TEST_P(Reconfigure, DifferentListsFailAtOnceOnAll) {
  start(3);
  form({0, 1, 2}, 1);
  const auto all = handles({0, 1, 2}), other = handles({0, 2, 1});
  const auto begun = Clock::now();
  for_each({0, 1, 2}, [&](int r) { reconfigure_to(r, r == 2 ? other : all, 2); });
  EXPECT_LT(Clock::now() - begun, 2s);
  for (int r = 0; r < 3; ++r) {
    ASSERT_TRUE(rank(r).error) << r;
    EXPECT_EQ(rank(r).error->code(), ErrorCode::mismatch) << rank(r).error->what();
    EXPECT_TRUE(test::contains(rank(r).error->what(), "different lists"));
  }
  expect_right({0, 1, 2});  // the old one stands
  form({0, 1, 2}, 3);
}

TEST_P(Reconfigure, ListsWithDifferentFirstRanksFailAtOnceOnAll) {
  start(2);
  const auto forth = handles({0, 1}), back = handles({1, 0});
  for (const bool crossed : {false, true}) {
    const auto begun = Clock::now();
    const std::uint64_t number = crossed ? 2 : 1;
    for_each({0, 1}, [&](int r) { reconfigure_to(r, (r == 0) == crossed ? back : forth, number); });
    EXPECT_LT(Clock::now() - begun, 2s);
    for (int r = 0; r < 2; ++r) {
      ASSERT_TRUE(rank(r).error) << r;
      EXPECT_EQ(rank(r).error->code(), ErrorCode::mismatch) << rank(r).error->what();
    }
  }
  form({0, 1}, 3);
}

TEST_P(Reconfigure, ListsThatShareSomeRanksFailAtOnceOnAll) {
  start(4);
  const auto left = handles({0, 1, 2}), right = handles({1, 2, 3});
  const auto begun = Clock::now();
  for_each({0, 1, 2, 3}, [&](int r) { reconfigure_to(r, r < 2 ? left : right, 1); });
  EXPECT_LT(Clock::now() - begun, 2s);
  for (int r = 0; r < 4; ++r) {
    ASSERT_TRUE(rank(r).error) << r;
    EXPECT_EQ(rank(r).error->code(), ErrorCode::mismatch) << r << ": " << rank(r).error->what();
  }
  form({0, 1, 2, 3}, 2);
}

TEST_P(Reconfigure, ADamagedHandleIsRefusedAtOnceAndHarmsNobody) {
  start(2);
  auto list = handles({0, 1});
  list[1].back() = list[1].back() == '0' ? '1' : '0';
  const auto begun = Clock::now();
  for_each({0}, [&](int r) { reconfigure_to(r, list, 1); });
  EXPECT_LT(Clock::now() - begun, 2s);
  ASSERT_TRUE(rank(0).error);
  EXPECT_EQ(rank(0).error->code(), ErrorCode::invalid_argument) << rank(0).error->what();
  EXPECT_TRUE(test::contains(rank(0).error->what(), "entry 1 of the list of handles is no handle"));
  form({0, 1}, 2);
}

TEST_P(Reconfigure, ANumberIsGoodOnce) {
  start(2);
  form({0, 1}, 7);
  const auto list = handles({0, 1});
  for_each({0, 1}, [&](int r) { reconfigure_to(r, list, 7); });
  for (int r = 0; r < 2; ++r) {
    ASSERT_TRUE(rank(r).error);
    EXPECT_EQ(rank(r).error->code(), ErrorCode::invalid_usage);
    EXPECT_TRUE(test::contains(rank(r).error->what(), "already used"));
  }
  expect_right({0, 1});
}

TEST_P(Reconfigure, ANumberThatOneRankHasUsedFailsOnAllAtOnce) {
  start(2);
  form({0}, 7);
  form({1}, 8);
  for (const std::uint64_t number : {7, 8}) {
    const auto list = handles({0, 1});
    const auto begun = Clock::now();
    for_each({0, 1}, [&](int r) { reconfigure_to(r, list, number); });
    EXPECT_LT(Clock::now() - begun, 2s);
    for (int r = 0; r < 2; ++r) {
      ASSERT_TRUE(rank(r).error) << number << " on rank " << r;
      EXPECT_EQ(rank(r).error->code(), ErrorCode::invalid_usage) << rank(r).error->what();
    }
  }
  form({0, 1}, 9);
}

TEST_P(Reconfigure, AListHasTheCallersOwnHandleOnce) {
  start(2);
  const auto fails = [&](const std::vector<std::string>& list, const char* says) {
    try {
      rank(0).comm.reconfigure(list, 1, options(0));
      ADD_FAILURE() << says;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_TRUE(test::contains(e.what(), says)) << e.what();
    }
  };
  const auto all = handles({0, 1});
  fails({}, "empty");
  fails({all[0], "nonsense"}, "entry 1 of the list of handles is no handle");
  fails({all[0], all[1].substr(0, all[1].size() - 1)}, "entry 1");
  for (std::size_t at = 0; at < all[1].size(); at += at < 40 ? 1 : 13) {
    std::string damaged = all[1];
    damaged[at] = damaged[at] == '7' ? '8' : '7';
    fails({all[0], damaged}, "entry 1 of the list of handles is no handle");
  }
  fails({all[1]}, "has not the one of this rank");
  fails({all[0], all[1], all[1]}, "entries 1 and 2 of the list of handles are the same rank");
  try {
    rank(0).comm.reconfigure(all, 0, options(0));
    ADD_FAILURE() << "0 is no number";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
  }
  form({0, 1}, 1);
}

TEST_P(Reconfigure, AnOldHandleFailsAtOnceOnAll) {
  start(2);
  const auto old = handles({0, 1});
  form({1}, 1);
  const auto begun = Clock::now();
  for_each({0, 1}, [&](int r) { reconfigure_to(r, old, 2); });
  EXPECT_LT(Clock::now() - begun, 2s);
  ASSERT_TRUE(rank(0).error && rank(1).error);
  EXPECT_EQ(rank(1).error->code(), ErrorCode::invalid_argument);
  EXPECT_TRUE(test::contains(rank(1).error->what(), "old handle")) << rank(1).error->what();
  EXPECT_EQ(rank(0).error->rank(), 1) << rank(0).error->what();
  form({0, 1}, 3);
}

TEST_P(Reconfigure, AHandleOfARankThatIsGoneIsKnownAtOnce) {
  start(3);
  form({0, 1, 2}, 1);
  for (const int gone : {2, 0}) {
    auto list = handles({0, 1, 2});
    std::vector<int> left{0, 1, 2};
    std::erase(left, gone);
    Communicator& dying = rank(gone).comm;
    dying = {};
    const auto begun = Clock::now();
    for_each(left, [&](int r) { reconfigure_to(r, list, 10 + static_cast<std::uint64_t>(gone)); });
    EXPECT_LT(Clock::now() - begun, 3s);
    for (const int r : left) {
      ASSERT_TRUE(rank(r).error) << r;
      EXPECT_EQ(rank(r).error->code(), ErrorCode::peer_lost) << rank(r).error->what();
      EXPECT_EQ(rank(r).error->rank(), gone) << rank(r).error->what();
      EXPECT_TRUE(test::contains(rank(r).error->what(), "is gone")) << rank(r).error->what();
    }
    form(left, 20 + static_cast<std::uint64_t>(gone));
    rank(gone).comm = Communicator::alone(options(gone));
    form({0, 1, 2}, 30 + static_cast<std::uint64_t>(gone));
  }
}

TEST_P(Reconfigure, AMadeUpHandleIsKnownAtOnce) {
  start(2);
  auto list = handles({0, 1});
  // Rank 1's place, and another key.
  Handle other = *Handle::from(list[1]);
  const Handle own = *Handle::from(list[0]);
  other.id = own.id;
  start(1);
  const Handle third = *Handle::from(rank(2).comm.handle());
  other.id = third.id;
  rank(2).comm = {};
  list[1] = other.text();
  const auto begun = Clock::now();
  for_each({0}, [&](int r) { reconfigure_to(r, list, 2); });
  EXPECT_LT(Clock::now() - begun, 3s);
  ASSERT_TRUE(rank(0).error);
  EXPECT_EQ(rank(0).error->code(), ErrorCode::peer_lost) << rank(0).error->what();
  EXPECT_EQ(rank(0).error->rank(), 1);
}

TEST_P(Reconfigure, ARankThatIsNotCalledIsNamedWhenTheTimeIsUp) {
  start(3);
  form({0, 1, 2}, 1);
  for (const int late : {2, 0}) {
    const auto list = handles({0, 1, 2});
    std::vector<int> called{0, 1, 2};
    std::erase(called, late);
    const auto begun = Clock::now();
    for_each(called,
             [&](int r) { reconfigure_to(r, list, 10 + static_cast<std::uint64_t>(late), 500ms); });
    const auto took = Clock::now() - begun;
    EXPECT_GE(took, 450ms);
    EXPECT_LT(took, 3s);
    for (const int r : called) {
      ASSERT_TRUE(rank(r).error) << r;
      EXPECT_EQ(rank(r).error->code(), ErrorCode::timed_out) << rank(r).error->what();
      EXPECT_CONTAINS(*rank(r).error, "rank " + std::to_string(late)) << rank(r).error->what();
    }
    // The late one is told when it comes.
    for_each({late},
             [&](int r) { reconfigure_to(r, list, 10 + static_cast<std::uint64_t>(late), 5s); });
    EXPECT_TRUE(rank(late).error);
    expect_right({0, 1, 2});
  }
  form({2, 1, 0}, 30);
}

// --- Growing by an id ----------------------------------------------------------------------------

TEST_P(Reconfigure, ARunningCommunicatorGrowsByAnId) {
  const UniqueId first = make_unique_id();
  for (int r = 0; r < 5; ++r) ranks_.push_back(std::make_unique<Rank>());
  for_each({0, 1, 2}, [&](int r) { rank(r).comm = Communicator::create(first, r, 3, options(r)); });
  expect_right({0, 1, 2});
  const UniqueId more = make_unique_id();
  std::vector<Communicator> before(3);
  for_each({0, 1, 2, 3, 4}, [&](int r) {
    if (r > 2) {
      rank(r).comm = Communicator::create(more, r, 5, options(r));
    } else {
      Communicator next = rank(r).comm.grow(more, 5, options(r));
      before[static_cast<std::size_t>(r)] = std::move(rank(r).comm);
      rank(r).comm = std::move(next);
    }
  });
  expect_right({0, 1, 2, 3, 4});
  for (int r = 0; r < 3; ++r) rank(r).comm = std::move(before[static_cast<std::size_t>(r)]);
  expect_right({0, 1, 2});  // the smaller one goes on
  try {
    rank(0).comm.grow(more, 3);
    FAIL() << "that is no growth";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
  }
}

}  // namespace
}  // namespace tutti
