// What the sharded engine is made of: where parameters lie, memory that is counted, the order of
// units, and which rank is the odd one out.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "parallel/agreement.h"
#include "parallel/memory_pool.h"
#include "parallel/sharded/layout.h"
#include "parallel/sharded/order.h"

namespace tutti::parallel {
namespace {

Unit odd_unit() {
  return {.name = "u",
          .parameters = {{"w", 35, 7}, {"none", 0, 0}, {"b", 3, 3}, {"m", 64, 4}, {"s", 1, 1}}};
}

// Every element of every parameter is held once, by the rank in whose block it lies.
TEST(Layout, HoldsEveryElementOnce) {
  const Unit unit = odd_unit();
  for (const Layout kind : {Layout::flat, Layout::by_parameter}) {
    for (std::size_t ranks = 1; ranks <= 9; ++ranks) {
      for (const std::size_t alignment : {1, 4, 32}) {
        const UnitLayout layout(unit, kind, ranks, alignment);
        EXPECT_EQ(layout.parameters(), 103U);
        EXPECT_GE(layout.gathered(), layout.parameters());
        EXPECT_GE(layout.full(), layout.gathered());
        EXPECT_EQ(layout.shard() % alignment, 0U);
        std::vector<int> full(layout.full());
        for (std::size_t p = 0; p < unit.parameters.size(); ++p) {
          std::vector<int> held(unit.parameters[p].count);
          EXPECT_EQ(layout.offset(p) % alignment, 0U);
          for (std::size_t r = 0; r < ranks; ++r) {
            const LocalRange range = layout.local(p, r);
            for (std::size_t i = 0; i < range.count; ++i) {
              ++held.at(range.begin + i);
              // Where the gather of the pieces brings it is where the parameter is.
              EXPECT_EQ(range.full_offset + i, layout.offset(p) + range.begin + i);
              ++full.at(range.full_offset + i);
              EXPECT_LT(range.shard_offset + i, layout.shard());
            }
          }
          EXPECT_EQ(held, std::vector<int>(held.size(), 1));
        }
        for (const int n : full) EXPECT_LE(n, 1);
        for (const Piece& piece : layout.pieces()) {
          EXPECT_LE(piece.full_offset + ranks * piece.block, layout.full());
          EXPECT_LE(piece.shard_offset + piece.block, layout.shard());
        }
      }
    }
  }
}

// The two ways to shard: FSDP2's keeps rows whole, the flat one keeps ranks even.
TEST(Layout, FlatCutsParametersAndByParameterCutsRows) {
  const Unit unit{.name = "u", .parameters = {{"w", 10 * 4, 10}, {"b", 10, 10}}};
  const UnitLayout flat(unit, Layout::flat, 4, 1), rows(unit, Layout::by_parameter, 4, 1);
  ASSERT_EQ(flat.pieces().size(), 1U);
  EXPECT_EQ(flat.pieces()[0].block, 13U);  // 50 elements, 4 ranks
  EXPECT_EQ(flat.local(0, 1).begin, 13U);
  EXPECT_EQ(flat.local(0, 3).count, 1U);  // element 39 of w, then 10 of b
  EXPECT_EQ(flat.local(1, 3).count, 10U);
  EXPECT_EQ(flat.local(1, 0).count, 0U);
  ASSERT_EQ(rows.pieces().size(), 2U);
  EXPECT_EQ(rows.pieces()[0].block, 12U);  // three rows
  EXPECT_EQ(rows.local(0, 3).begin, 36U);
  EXPECT_EQ(rows.local(0, 3).count, 4U);  // the last row
  EXPECT_EQ(rows.local(1, 2).begin, 6U);
  EXPECT_EQ(rows.gathered(), 4U * (12 + 3));
  EXPECT_EQ(UnitLayout(unit, Layout::by_parameter, 16, 1).local(0, 12).count, 0U);
  EXPECT_EQ(UnitLayout(Unit{}, Layout::flat, 4, 32).full(), 0U);
}

TEST(MemoryPool, CountsWhatIsInUseAndKeepsWhatWasFreed) {
  MemoryPool memory(MemoryPool::Reuse::yes);
  const auto use = [&] { return memory.use(MemoryKind::window); };
  Buffer a = memory.allocate(1000);
  std::byte* const block = a.data();
  EXPECT_EQ(use().bytes, 1000U);
  a.reset();
  EXPECT_EQ(use().bytes, 0U);
  EXPECT_EQ(use().reserved, 1000U);
  block[7] = std::byte{1};
  Buffer b = memory.zeros(800);  // in the same block
  EXPECT_EQ(b.data(), block);
  EXPECT_EQ(block[7], std::byte{0});
  EXPECT_EQ(use().bytes, 800U);
  EXPECT_EQ(use().reserved, 1000U);
  Buffer c = memory.allocate(500);
  EXPECT_NE(c.data(), block);
  EXPECT_EQ(use().peak, 1300U);
  c.reset();
  c = memory.allocate(600);  // nothing fits, so what is kept makes room
  EXPECT_EQ(use().reserved, 1600U);
  EXPECT_EQ(use().peak, 1400U);
  const Buffer host = memory.allocate(64, MemoryKind::host);
  EXPECT_EQ(memory.use(MemoryKind::host).bytes, 64U);
  EXPECT_EQ(memory.total().bytes, 1464U);
  Buffer none = memory.allocate(0);
  EXPECT_TRUE(none);
  EXPECT_EQ(none.data(), nullptr);
  Buffer moved = std::move(b);
  EXPECT_EQ(moved.data(), block);
  EXPECT_EQ(memory.total().bytes, 1464U);
}

TEST(UnitOrder, ExpectsWhatCameLast) {
  using Kind = Event::Kind;
  const Event f0{Kind::forward, 0}, f1{Kind::forward, 1}, b1{Kind::backward, 1},
      b0{Kind::backward, 0}, end{Kind::finish, 0};
  Order order;
  EXPECT_TRUE(order.expected(3).empty());
  for (const Event e : {f0, f1, b1, b0, end}) {
    EXPECT_FALSE(order.is_known(e));
    order.record(e);
  }
  const std::uint64_t whole = order.hash();
  order.forget_history();
  EXPECT_FALSE(order.is_known(f0));  // after the end it has not come yet
  order.record(f0);
  EXPECT_EQ(order.expected(2), (std::vector<Event>{f1, b1}));
  EXPECT_EQ(order.expected(9), (std::vector<Event>{f1, b1, b0}));  // not beyond the end
  for (const Event e : {f1, b1, b0, end}) {
    EXPECT_TRUE(order.is_known(e));
    order.record(e);
  }
  EXPECT_EQ(order.hash(), whole);
  order.forget_history();
  order.record(f1);
  order.record(f0);  // another way
  EXPECT_EQ(order.expected(1), (std::vector<Event>{f1}));
  order.record(f1);  // from where f0 comes next, and f1 after it: a circle
  EXPECT_LT(order.expected(~std::size_t{0}).size(), 10U);
  EXPECT_EQ(Event::of(b1.code()), b1);
}

// What follows on an event may depend on where in the step it is.
TEST(UnitOrder, KnowsMicroBatches) {
  using Kind = Event::Kind;
  const Event f{Kind::forward, 0}, b{Kind::backward, 0}, end{Kind::finish, 0};
  Order order;
  for (int step = 0; step < 2; ++step) {
    for (const Event e : {f, b, f, b, end}) order.record(e);
    order.forget_history();
  }
  order.record(f);
  order.record(b);
  EXPECT_EQ(order.expected(9), (std::vector<Event>{f, b}));
  order.record(f);
  order.record(b);
  EXPECT_TRUE(order.expected(9).empty());
  order.record(f);  // a third one: as it last went on
  EXPECT_EQ(order.expected(1), (std::vector<Event>{b}));
}

TEST(Agreement, FindsTheOddOne) {
  const auto odd = [](std::vector<std::uint64_t> values) { return odd_one(values); };
  EXPECT_EQ(odd({4, 4, 4}), -1);
  EXPECT_EQ(odd({4, 4, 5, 4}), 2);
  EXPECT_EQ(odd({5, 4, 4, 4}), 0);
  EXPECT_EQ(odd({4, 5}), 1);
  EXPECT_EQ(odd({4, 4, 5, 5}), 2);
  EXPECT_EQ(odd({1}), -1);
}

}  // namespace
}  // namespace tutti::parallel
