// That plans end with one slot, too: the lists of all ranks (part.h) are carried out side by side
// as run.cpp does, with messages that wait for their receiver.
//
// A rank takes each of its lists in order, and nothing that it may do now is forbidden by what
// others do meanwhile. So whatever the timing, all ranks come to the same end: one run stands for
// all of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#include "parallel/reshard/part.h"
#include "parallel/reshard/verify.h"
#include "tests/parallel/reshard_cases.h"

namespace tutti::parallel::reshard::test {
namespace {

struct Rank {
  RankPart part;
  std::size_t sent = 0, posted = 0, offered = 0;  // begun
  std::size_t sends = 0;                          // over
  Arrivals done{};

  bool over() const {
    return sends == part.sends.size() && offered == part.offers.size() &&
           done.receives == part.receives.size() && done.reads == part.reads.size() &&
           done.copies == part.copies.size();
  }
};

class Machine {
 public:
  Machine(const Plan& plan, std::size_t slots, const std::function<bool(int, int)>& reads)
      : slots_(slots), sent_(plan.messages.size()), there_(sent_), offered_(sent_) {
    for (int r = 0; r < plan.ranks(); ++r) ranks_.push_back({.part = part_of(plan, r, reads)});
  }

  /// Whether all ranks come to their end.
  bool ends() {
    for (bool moved = true; moved;) {
      moved = false;
      for (Rank& r : ranks_) {
        while (step(r)) moved = true;
      }
    }
    for (const Rank& r : ranks_) {
      if (!r.over()) return false;
    }
    return true;
  }
  std::vector<Rank>& ranks() { return ranks_; }

 private:
  /// Entry number `next` of a list, which is the next one; null: there is none.
  static const PartEntry* at(const std::vector<PartEntry>& list, std::size_t next) {
    return next < list.size() ? &list[next] : nullptr;
  }

  bool step(Rank& r) {
    const RankPart& p = r.part;
    if (const auto* e = at(p.sends, r.sends); e && r.sends < r.sent && there_[e->message]) {
      return ++r.sends, true;
    }
    if (const auto* e = at(p.receives, r.done.receives);
        e && r.done.receives < r.posted && sent_[e->message]) {
      return ++r.done.receives, true;
    }
    if (const auto* e = at(p.sends, r.sent);
        e && r.sent - r.sends < slots_ && r.done.covers(e->needed)) {
      return sent_[e->message] = true, ++r.sent, true;
    }
    if (const auto* e = at(p.receives, r.posted); e && r.posted - r.done.receives < slots_) {
      return there_[e->message] = true, ++r.posted, true;
    }
    if (const auto* e = at(p.offers, r.offered); e && r.done.covers(e->needed)) {
      return offered_[e->message] = true, ++r.offered, true;
    }
    if (const auto* e = at(p.reads, r.done.reads); e && (!e->relays || offered_[e->message])) {
      return ++r.done.reads, true;
    }
    if (const auto* e = at(p.copies, r.done.copies); e && r.done.covers(e->needed)) {
      return ++r.done.copies, true;
    }
    return false;
  }

  const std::size_t slots_;
  std::vector<Rank> ranks_;
  std::vector<bool> sent_, there_, offered_;  // by message: its sender, its receiver has begun
};

using Reads = std::function<bool(int, int)>;

std::vector<Reads> ways(const Plan& plan, std::uint64_t seed) {
  const auto same_host = [&plan](int a, int b) {
    return plan.hosts[index(a)] == plan.hosts[index(b)];
  };
  return {[](int, int) { return false; }, same_host,
          [same_host, seed](int a, int b) {
            return same_host(a, b) && ((seed >> (a % 8 * 8 + b % 8)) & 1) != 0;
          }};
}

TEST(ReshardSlots, EveryRandomPlanEndsWithOneSlot) {
  std::mt19937_64 random(3);
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Case c = random_case(seed);
    const Plan plan = make_plan(c.from, c.to, c.options);
    for (const Reads& reads : ways(plan, random())) {
      for (const std::size_t slots : {1, 2}) {
        ASSERT_TRUE(Machine(plan, slots, reads).ends()) << seed << ", slots " << slots;
      }
    }
  }
}

TEST(ReshardSlots, AnyOrderThatIsProvedEnds) {
  std::mt19937_64 random(4);
  int other_orders = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const Case c = random_case(seed);
    Plan plan = make_plan(c.from, c.to, c.options);
    if (plan.messages.size() < 2) continue;
    const Plan before = plan;
    std::shuffle(plan.messages.begin(), plan.messages.end(), random);
    plan.moves.clear();
    for (Message& m : plan.messages) {
      const auto of = before.moves_of(m);
      m.begin = plan.moves.size();
      plan.moves.insert(plan.moves.end(), of.begin(), of.end());
    }
    if (!verify(c.from, c.to, plan).right) continue;
    ++other_orders;
    for (const Reads& reads : ways(plan, random())) {
      ASSERT_TRUE(Machine(plan, 1, reads).ends()) << seed;
    }
  }
  EXPECT_GT(other_orders, 100);
}

TEST(ReshardSlots, AnotherOrderOnTheTwoSidesDoesNotEnd) {
  // So this test can fail: rank 0 sends its two messages in another order than rank 1 takes them.
  Layout from(2), to(2);
  const int first[] = {0}, second[] = {1};
  for (const char* name : {"a", "b"}) {
    const Tensor tensor{name, DataType::float32, {1 << 20}};
    add_replicated(from, tensor, first);
    add_replicated(to, tensor, second);
  }
  const Plan plan = make_plan(from, to, {.host_message_bytes = 4 << 20});
  const Reads none = [](int, int) { return false; };
  Machine right(plan, 1, none);
  ASSERT_EQ(right.ranks()[0].part.sends.size(), 2U);
  EXPECT_TRUE(right.ends());
  for (const std::size_t slots : {1, 2}) {
    Machine wrong(plan, slots, none);
    std::swap(wrong.ranks()[0].part.sends[0], wrong.ranks()[0].part.sends[1]);
    EXPECT_EQ(wrong.ends(), slots == 2);
  }
}

}  // namespace
}  // namespace tutti::parallel::reshard::test
