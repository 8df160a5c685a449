// Communicators that do not come to be: what each rank hears where lists differ, and of handles and
// ranks that are old, made up, gone or late. Part of reconfigure_test.
#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bootstrap/handle.h"
#include "comm/communicator.h"
#include "core/error.h"
#include "tests/comm/reconfigure_fixture.h"
#include "tests/support/contains.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

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

}  // namespace
}  // namespace tutti::test
