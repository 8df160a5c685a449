// Which way versions go: the faster one, found by what versions take, at little cost.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>

#include "parallel/weights/way_choice.h"

namespace tutti::parallel::weights {
namespace {

using Ms = std::chrono::milliseconds;

/// Times of versions on a link, in ms: plain; coded with changes to the version before, and whole.
struct Link {
  double plain, coded, whole;
};

struct Course {
  double time = 0;  // all versions
  int coded = 0, last_coded = -1, plain = 0;
};

Course go(WayChoice& choice, const Link& link, int versions) {
  Course course;
  bool before = false;  // the version before was coded
  for (int v = 0; v < versions; ++v) {
    const bool coded = choice.coded();
    const double ms = !coded ? link.plain : before ? link.coded : link.whole;
    choice.took(std::chrono::nanoseconds(static_cast<std::int64_t>(ms * 1e6)));
    course.time += ms;
    ++(coded ? course.coded : course.plain);
    if (coded) course.last_coded = v;
    before = coded;
  }
  return course;
}

TEST(WayChoice, LeavesTheCoderOnAFastLink) {
  // The link at its meeting: a little faster than it is, or, as others used it, far slower.
  for (const int guess : {12, 100}) {
    WayChoice choice{Ms(guess)};
    const Link link{15.4, 35.2, 40};
    const Course first = go(choice, link, 100);
    EXPECT_LT(first.coded, 50) << guess;
    const Course later = go(choice, link, 5000);
    EXPECT_LT(later.time, 1.02 * link.plain * 5000) << guess;
  }
}

TEST(WayChoice, StaysWithTheCoderOnASlowLink) {
  WayChoice choice{Ms(540)};
  EXPECT_EQ(go(choice, {562, 46, 375}, 5000).plain, 0);  // 12 times: plain is not even tried
  WayChoice planes{Ms(540)};
  const Course course = go(planes, {562, 375, 375}, 5000);
  EXPECT_LT(course.time, 1.02 * 375 * 5000);
}

TEST(WayChoice, FollowsWhatChanges) {
  WayChoice choice{Ms(540)};
  go(choice, {562, 46, 375}, 10);
  const Course random = go(choice, {562, 600, 600}, 1000);  // nothing is to be gained any more
  EXPECT_LT(random.time, 1.02 * 562 * 1000);
  const Course again = go(choice, {562, 46, 375}, 2000);
  EXPECT_GT(again.coded, 500);
}

TEST(WayChoice, MeasuresWhatItHasGuessed) {
  // The guess is too good: coded versions are the faster ones all the same.
  WayChoice choice{Ms(30)};
  const Course course = go(choice, {100, 50, 80}, 100);
  EXPECT_LE(course.plain, 3);
  EXPECT_TRUE(choice.coded());
}

}  // namespace
}  // namespace tutti::parallel::weights
