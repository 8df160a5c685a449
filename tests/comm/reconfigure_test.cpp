// Communicators that change their ranks: which ranks are in the next one, and what becomes of the
// old one.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "core/error.h"
#include "tests/comm/reconfigure_fixture.h"
#include "tests/support/contains.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

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
}  // namespace tutti::test
