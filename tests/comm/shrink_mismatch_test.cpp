// Ranks that exclude different ranks from what they shrink to, and ranks that come late to it.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "tests/support/grouping_locale.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using test::error_of;
using test::run_thread_ranks;

TEST(ShrinkMismatch, IsNoneWhereTheProgramsLocaleSeparatesThousands) {
  const test::GroupingLocale locale;
  for (const std::vector<int>& excluded : {std::vector{4}, {0, 4}, {1, 2, 3}, {}}) {
    run_thread_ranks(5, [&](Communicator& c) {
      if (c.rank() == 2) c.abort();
      if (std::ranges::count(excluded, c.rank()) > 0) return;
      Communicator rest = c.shrink(excluded);
      rest.barrier();
      EXPECT_EQ(rest.size(), 5 - static_cast<int>(excluded.size()));
    });
  }
}

TEST(ShrinkMismatch, OfWhatShrinkExcludesIsNamed) {
  const auto shrink = [](Communicator& c, const std::vector<int>& excluded) {
    const auto begun = std::chrono::steady_clock::now();
    const Error e = error_of([&] { c.shrink(excluded).barrier(); });
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(30));
    return e;
  };
  run_thread_ranks(4, [&](Communicator& c) {
    if (c.rank() == 3) return;
    const bool odd = c.rank() == 2;
    const Error e = shrink(c, odd ? std::vector{3, 1} : std::vector{3});
    const std::string what = e.what();
    EXPECT_EQ(e.code(), ErrorCode::mismatch) << what;
    if (c.rank() == 0) {
      EXPECT_NE(what.find("rank 0 excludes 3, rank 2 excludes 1, 3"), what.npos) << what;
    } else if (c.rank() == 2) {
      EXPECT_NE(what.find("rank 2 excludes 1, 3, rank 0 excludes 3"), what.npos) << what;
    } else {
      EXPECT_NE(what.find("rank 0, which excludes the same ranks"), what.npos) << what;
    }
  });
  // Not a mismatch: others go first, and come later.
  run_thread_ranks(4, [&](Communicator& c) {
    if (c.rank() < 2) c.shrink(std::vector{2, 3}).barrier();
    if (c.rank() < 3) c.shrink(std::vector{3, 3}).barrier();
    c.shrink({}).barrier();
    c.shrink({}).barrier();
  });
  // A rank that has left will not come.
  run_thread_ranks(3, [&](Communicator& c) {
    if (c.rank() == 2) return c.destroy();
    const Error e = shrink(c, {});
    EXPECT_EQ(e.code(), ErrorCode::peer_lost) << e.what();
    EXPECT_EQ(e.rank(), 2);
    c.shrink(std::vector{2}).barrier();
  });
  Options options;
  options.rendezvous_timeout = std::chrono::milliseconds(100);
  run_thread_ranks(2, [&](Communicator& c) {
    if (c.rank() == 0) {
      const Error e = error_of([&] { c.shrink({}, options); });
      EXPECT_EQ(e.code(), ErrorCode::timed_out);
      EXPECT_NE(std::string(e.what()).find("rank 1 has not called it in time"), std::string::npos);
    }
    c.barrier();
    c.shrink({}).barrier();  // another attempt
  });
}

// The error names the rank that is late, and not a rank that gave up on it a moment before and is
// gone.
TEST(ShrinkMismatch, NamesWhoIsLateOnAllOthers) {
  constexpr int kLate = 2;
  std::vector<Communicator> comms = Communicator::create_local(5);
  comms[1].destroy();
  std::vector<Error> errors(5, Error(ErrorCode{}, "no error"));
  {
    std::vector<std::jthread> threads;
    for (const int r : {0, 3, 4}) {
      threads.emplace_back([&, r] {
        const auto at = static_cast<std::size_t>(r);
        Options options;
        options.rendezvous_timeout = std::chrono::milliseconds(300 + 20 * r);
        errors[at] = error_of([&] { comms[at].shrink(std::vector<int>{1}, options); });
        comms[at].destroy();
      });
    }
  }
  for (const int r : {0, 3, 4}) {
    const Error& e = errors[static_cast<std::size_t>(r)];
    EXPECT_EQ(e.code(), ErrorCode::timed_out) << e.what();
    EXPECT_EQ(e.rank(), kLate) << e.what();
  }
}

}  // namespace
}  // namespace tutti
