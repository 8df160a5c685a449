// Which rank owns which cells of a field that is cut into blocks, which cells a rank needs of
// others, and which messages bring them: arithmetic, without a communicator.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/error.h"
#include "tests/parallel/domain_shapes.h"
#include "tests/support/contains.h"
#include "tests/support/thread_ranks.h"

namespace tutti {
namespace {

using namespace test;
using parallel::domain::Blocks;

using Cell = std::vector<std::int64_t>;

TEST(DomainBlocks, AreAsEqualAsCanBe) {
  const Blocks blocks(6, {{"y", 7, 2}, {"x", 9, 3}});  // the example of blocks.h
  EXPECT_EQ(blocks.box(0), (Box{{0, 4}, {0, 3}}));
  EXPECT_EQ(blocks.box(2), (Box{{0, 4}, {6, 9}}));
  EXPECT_EQ(blocks.box(4), (Box{{4, 7}, {3, 6}}));
  const Blocks open(6, {{"y", 8, 2}, {"x", 11, -1}});
  EXPECT_EQ(open.dimensions()[1].blocks, (std::vector<std::int64_t>{4, 4, 3}));
}

TEST(DomainBlocks, HaveEachCellOnce) {
  for (const DomainShape& s : domain_shapes()) {
    const HaloLayout layout(s.ranks, s.shape);
    for (const Blocks* blocks : {&layout.input(), &layout.output()}) {
      std::map<std::int64_t, int> owners;
      for (int r = 0; r < s.ranks; ++r) {
        each_cell(blocks->box(r), [&](const Cell& cell) {
          const std::int64_t number = number_of(blocks->dimensions(), cell);
          EXPECT_GE(number, 0);
          EXPECT_TRUE(owners.emplace(number, r).second) << s.text();
        });
      }
      std::size_t all = 1;
      for (const Dimension& d : blocks->dimensions()) all *= static_cast<std::size_t>(d.cells);
      EXPECT_EQ(owners.size(), all) << s.text();
    }
  }
}

TEST(DomainLayout, HasAsManyOutputsAsOneRank) {
  const auto outputs = [](std::int64_t cells, Stencil s) {
    return HaloLayout(1, {"", {{"x", cells}}, {s}}).output().dimensions()[0].cells;
  };
  EXPECT_EQ(outputs(7, {.kernel = 3, .padding = 1}), 7);
  EXPECT_EQ(outputs(7, {.kernel = 3}), 5);
  EXPECT_EQ(outputs(7, {.kernel = 2, .stride = 2}), 3);
  EXPECT_EQ(outputs(8, {.kernel = 3, .stride = 2, .padding = 1}), 4);
  EXPECT_EQ(outputs(9, {.kernel = 3, .stride = 2, .dilation = 2, .padding = 2}), 5);
}

TEST(DomainLayout, SaysWhatOutputsRead) {
  const HaloLayout layout(2, {"",
                              {{"y", 9}, {"x", 12, 2}},
                              {{.kernel = 3, .stride = 2, .dilation = 2, .padding = 2}, {}}});
  EXPECT_EQ(layout.reads({{0, 1}, {3, 5}}), (Box{{-2, 3}, {3, 5}}));
  EXPECT_EQ(layout.reads({{1, 3}, {0, 1}}), (Box{{0, 7}, {0, 1}}));
  EXPECT_EQ(cells(layout.reads({{1, 1}, {0, 1}})), 0);
  EXPECT_EQ(layout.reads(layout.output().box(1)), layout.padded(1));
}

/// Pooling that is aligned with the blocks needs no message.
TEST(DomainLayout, NeedsNothingWhereBlocksAreAligned) {
  const HaloLayout layout(4, {"pool", {{"x", 16, 4}}, {{.kernel = 2, .stride = 2}}});
  for (int r = 0; r < 4; ++r) {
    EXPECT_TRUE(layout.to(r).empty());
    EXPECT_EQ(layout.padded(r), layout.input().box(r));
    EXPECT_EQ(layout.output().box(r), (Box{{2 * r, 2 * r + 2}}));
    EXPECT_TRUE(layout.border(r).empty());
  }
}

TEST(DomainLayout, InteriorAndBorderAreTheOutput) {
  for (const DomainShape& s : domain_shapes()) {
    const HaloLayout layout(s.ranks, s.shape);
    for (int r = 0; r < s.ranks; ++r) {
      const Box own = layout.input().box(r), interior = layout.interior(r);
      std::set<Cell> border;
      for (const Box& box : layout.border(r)) {
        each_cell(box, [&](const Cell& c) { EXPECT_TRUE(border.insert(c).second) << s.text(); });
      }
      EXPECT_LE(layout.border(r).size(), 2 * own.size());
      EXPECT_EQ(cells(interior) + static_cast<std::int64_t>(border.size()),
                cells(layout.output().box(r)));
      each_cell(layout.output().box(r), [&](const Cell& output) {
        Box reads;
        bool inside = true;  // own cells alone, or what is beyond edges of zeros
        for (std::size_t d = 0; d < own.size(); ++d) {
          reads.push_back(s.shape.stencils[d].reads({output[d], output[d] + 1}));
          const Dimension& dimension = layout.input().dimensions()[d];
          Range in = reads[d];
          if (dimension.edge == Edge::zero) in = intersection(in, {0, dimension.cells});
          inside = inside && intersection(in, own[d]) == in;
        }
        EXPECT_EQ(contains(interior, output), inside) << s.text();
        EXPECT_NE(border.contains(output), inside) << s.text();
        each_cell(reads,
                  [&](const Cell& c) { EXPECT_TRUE(contains(layout.padded(r), c)) << s.text(); });
      });
    }
  }
}

/// Every rank's cells, as the messages move them: by the number of a cell in the field.
TEST(DomainLayout, MessagesFillTheHalo) {
  for (const DomainShape& s : domain_shapes()) {
    const HaloLayout layout(s.ranks, s.shape);
    const auto dimensions = layout.input().dimensions();
    std::vector<std::map<Cell, std::int64_t>> has(static_cast<std::size_t>(s.ranks));
    for (int r = 0; r < s.ranks; ++r) {
      each_cell(layout.input().box(r), [&](const Cell& c) {
        has[static_cast<std::size_t>(r)][c] = number_of(dimensions, c);
      });
    }
    for (std::size_t d = 0; d < dimensions.size(); ++d) {
      auto then = has;
      for (int r = 0; r < s.ranks; ++r) {
        for (const HaloMessage& m : layout.to(r)) {
          if (m.dimension != d) continue;
          std::vector<std::int64_t> data;
          each_cell(m.source, [&](const Cell& c) {
            const auto& from = has[static_cast<std::size_t>(m.from)];
            ASSERT_TRUE(from.contains(c)) << s.text();
            data.push_back(from.at(c));
          });
          std::size_t next = 0;
          each_cell(m.target, [&](const Cell& c) {
            // Nothing comes twice.
            EXPECT_TRUE(then[static_cast<std::size_t>(r)].emplace(c, data.at(next++)).second);
          });
          EXPECT_EQ(next, data.size());
        }
      }
      has = std::move(then);
    }
    for (int r = 0; r < s.ranks; ++r) {
      std::size_t wanted = 0;
      each_cell(layout.in_field(r), [&](const Cell& c) {
        if (!s.shape.corners && !no_corner(layout.input().box(r), c)) return;
        ++wanted;
        const auto& mine = has[static_cast<std::size_t>(r)];
        ASSERT_TRUE(mine.contains(c)) << s.text();
        EXPECT_EQ(mine.at(c), number_of(dimensions, c)) << s.text();
      });
      EXPECT_EQ(has[static_cast<std::size_t>(r)].size(), wanted) << s.text();
    }
  }
}

TEST(DomainLayout, BothEndsHaveTheSameMessagesInTheSameOrder) {
  using Pair = std::pair<int, int>;
  for (const DomainShape& s : domain_shapes()) {
    const HaloLayout layout(s.ranks, s.shape);
    std::map<Pair, std::vector<std::pair<Box, Box>>> sent, received;
    for (int r = 0; r < s.ranks; ++r) {
      for (const HaloMessage& m : layout.to(r)) {
        EXPECT_EQ(m.to, r);
        if (m.from != r) received[{m.from, r}].emplace_back(m.source, m.target);
      }
      for (const HaloMessage& m : layout.from(r)) {
        EXPECT_EQ(m.from, r);
        sent[{r, m.to}].emplace_back(m.source, m.target);
      }
    }
    EXPECT_EQ(sent, received) << s.text();
  }
}

TEST(DomainErrors, NameTheDimension) {
  const auto error = [](int ranks, const HaloShape& shape) {
    return error_of([&] { HaloLayout(ranks, shape); });
  };
  const Stencil three{.kernel = 3, .padding = 1};
  const auto expect = [&](int ranks, const HaloShape& shape, const std::string& part) {
    const Error e = error(ranks, shape);
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << part;
    EXPECT_CONTAINS(e, part);
  };
  expect(4, {"", {{"y", 8, 2}, {"x", 8, 3}}, {three, three}},
         "the mesh y 2 x x 3 of 4 ranks: the sizes have to multiply up to the number of ranks");
  expect(4, {"", {{"x", 3, 4}}, {three}},
         "dimension x of 3 cells over 4 ranks: some would have none");
  expect(2, {"", {{"x", 3, 2, Edge::zero, {1, 1, 1}}}, {three}},
         "dimension x of 3 cells over 2 ranks: blocks of [1, 1, 1] are 3");
  expect(2, {"", {{"x", 3, 2, Edge::zero, {1, 1}}}, {three}}, "blocks of [1, 1] have 2 together");
  expect(2, {"", {{"x", 3, 2, Edge::zero, {4, -1}}}, {three}}, "a block of 4 cells");
  expect(1, {"", {{"x", 0}}, {three}}, "dimension x of 0 cells over 1 ranks: there have to be 1");
  expect(1, {"", {{"x", 4}}, {}}, "0 stencils for 1 dimensions");
  expect(1, {"", {}, {}}, "blocks without a dimension");
  expect(1, {"", {{"x", 4}}, {{.kernel = 0}}}, "dimension x of 4 cells: a stencil of kernel 0");
  expect(1, {"", {{"x", 4}}, {{.stride = 0}}}, "stride 0");
  expect(1, {"", {{"x", 4}}, {{.dilation = 0}}}, "dilation 0");
  expect(1, {"", {{"x", 4}}, {{.padding = -1}}}, "padding -1");
  expect(1, {"", {{"x", 4}}, {{.kernel = 7, .padding = 1}}},
         "a stencil of 7 cells is wider than the field with its padding of 2 x 1");
  expect(1, {"", {{"y", 900'000'000}, {"x", 900'000'000}}, {three, three}},
         "more elements than there can be");
  expect(2, {"", {{"x", 4, 1}, {"x", 4, 2}}, {three, three}}, "two dimensions are called x");
}

}  // namespace
}  // namespace tutti
