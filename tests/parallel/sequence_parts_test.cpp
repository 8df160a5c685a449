// The parts of sequence parallelism, each by itself: which queries meet which keys, which rank gets
// which heads, how results of blocks become one, and the plain kernel that other tests trust.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/convert.h"
#include "parallel/sequence/heads.h"
#include "parallel/sequence/kernel.h"
#include "parallel/sequence/layout.h"
#include "parallel/sequence/merge.h"

namespace tutti::parallel::sequence {
namespace {

std::vector<double> numbers(std::size_t count, double seed) {
  std::vector<double> v(count);
  for (std::size_t i = 0; i < count; ++i) {
    v[i] = std::sin(seed * 12.9898 + static_cast<double>(i) * 0.7371) *
           std::cos(static_cast<double>(i * i % 97) + seed);
  }
  return v;
}

// --- Which queries meet which keys ---------------------------------------------------------------

/// How often each query meets each key, by their positions.
class Meetings {
 public:
  explicit Meetings(std::size_t sequence) : sequence_(sequence), of_(sequence * sequence) {}

  /// `key`: the position of a row of the keys.
  template <class Key>
  void add(const SequenceLayout& l, const std::vector<Part>& parts, const Key& key) {
    for (const Part& p : parts) {
      ASSERT_LE(p.queries.end(), l.rows);
      ASSERT_GT(p.queries.count, 0u);
      ASSERT_GT(p.keys.count, 0u);
      if (p.causal) {
        ASSERT_GE(p.keys.count, p.queries.count);
      }
      for (std::size_t i = 0; i < p.queries.count; ++i) {
        const std::size_t seen = p.causal ? p.keys.count - p.queries.count + i + 1 : p.keys.count;
        const std::size_t query = l.position(l.rank, p.queries.first + i);
        for (std::size_t j = 0; j < seen; ++j) ++of_[query * sequence_ + key(p.keys.first + j)];
      }
    }
  }
  void expect(bool causal, const std::string& where) const {
    for (std::size_t q = 0; q < sequence_; ++q) {
      for (std::size_t k = 0; k < sequence_; ++k) {
        ASSERT_EQ(of_[q * sequence_ + k], !causal || k <= q ? 1 : 0) << where << " " << q << k;
      }
    }
  }

 private:
  std::size_t sequence_;
  std::vector<int> of_;
};

TEST(SequenceParts, EachQueryMeetsEachKeyThatItSeesOnce) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const std::size_t rows : {1, 2, 5, 6}) {
      for (const bool causal : {false, true}) {
        for (const SequenceOrder order : {SequenceOrder::contiguous, SequenceOrder::zigzag}) {
          if (order == SequenceOrder::zigzag && rows % 2 != 0) continue;
          const std::size_t sequence = rows * static_cast<std::size_t>(ranks);
          Meetings whole(sequence), halves(sequence), gathered(sequence);
          for (int r = 0; r < ranks; ++r) {
            const SequenceLayout l{order, causal, rows, r, ranks};
            const auto own = [&](std::size_t row) { return l.position(r, row); };
            for (int owner = 0; owner < ranks; ++owner) {
              const auto key = [&](std::size_t row) { return l.position(owner, row); };
              whole.add(l, l.parts(owner), key);
              if (owner != r) halves.add(l, l.parts(owner), key);
            }
            halves.add(l, l.early(), own);
            halves.add(l, l.late(), own);
            gathered.add(l, l.gathered(), [](std::size_t row) { return row; });
          }
          const std::string where = fmt::format("{} ranks, {} rows, {}, {}", ranks, rows, causal,
                                                order == SequenceOrder::zigzag);
          whole.expect(causal, where);
          halves.expect(causal, where);
          gathered.expect(causal, where);
        }
      }
    }
  }
}

std::size_t work_of(const std::vector<Part>& parts) {
  std::size_t work = 0;
  for (const Part& p : parts) {
    const std::size_t n = p.queries.count;
    work += n * p.keys.count - (p.causal ? n * (n - 1) / 2 : 0);
  }
  return work;
}

TEST(SequenceParts, ZigzagGivesAllRanksTheSameWorkInEachStep) {
  constexpr int kRanks = 8;
  constexpr std::size_t kRows = 64, kHalf = 32;
  for (int r = 0; r < kRanks; ++r) {
    const SequenceLayout l{SequenceOrder::zigzag, true, kRows, r, kRanks};
    for (int owner = 0; owner < kRanks; ++owner) {
      // Two halves of 32 x 32 each; of its own keys, a triangle.
      EXPECT_EQ(work_of(l.parts(owner)), owner == r ? kRows * (kRows + 1) / 2 : 2 * kHalf * kHalf);
    }
    EXPECT_EQ(work_of(l.late()), kHalf * kHalf);
    EXPECT_EQ(work_of(l.early()), kHalf * (kHalf + 1));
  }
}

// --- Who gets which heads ------------------------------------------------------------------------

std::string text_of(std::size_t heads, std::size_t kv_heads, std::size_t ranks) {
  std::string text;
  for (const HeadShare& s : share_heads(heads, kv_heads, ranks)) {
    text +=
        fmt::format("{}+{}/{}+{} ", s.queries.first, s.queries.count, s.keys.first, s.keys.count);
  }
  return text;
}

TEST(SequenceParts, HeadsGoInWholeGroupsOrToRanksThatShareAKeyHead) {
  EXPECT_EQ(text_of(8, 8, 4), "0+2/0+2 2+2/2+2 4+2/4+2 6+2/6+2 ");
  EXPECT_EQ(text_of(7, 7, 3), "0+2/0+2 2+2/2+2 4+3/4+3 ");
  EXPECT_EQ(text_of(8, 4, 3), "0+2/0+1 2+2/1+1 4+4/2+2 ");
  EXPECT_EQ(text_of(8, 2, 4), "0+2/0+1 2+2/0+1 4+2/1+1 6+2/1+1 ");
  EXPECT_EQ(text_of(6, 1, 4), "0+1/0+1 1+2/0+1 3+1/0+1 4+2/0+1 ");
  EXPECT_EQ(text_of(8, 2, 3), "0+4/0+1 4+2/1+1 6+2/1+1 ");
  for (std::size_t kv_heads = 1; kv_heads <= 9; ++kv_heads) {
    for (std::size_t group = 1; group <= 5; ++group) {
      for (std::size_t ranks = 1; ranks <= kv_heads * group; ++ranks) {
        const auto shares = share_heads(kv_heads * group, kv_heads, ranks);
        ASSERT_EQ(shares.size(), ranks);
        std::size_t next = 0, least = kv_heads, most = 0;
        for (const HeadShare& s : shares) {
          EXPECT_EQ(s.queries.first, next);  // each query head once
          next = s.queries.end();
          ASSERT_GT(s.queries.count, 0u);
          ASSERT_EQ(s.queries.count % s.keys.count, 0u);
          const std::size_t local = s.queries.count / s.keys.count;
          for (std::size_t h = 0; h < s.queries.count; ++h) {
            EXPECT_EQ((s.queries.first + h) / group, s.keys.first + h / local);
          }
          least = std::min(least, s.keys.count);
          most = std::max(most, s.keys.count);
        }
        EXPECT_EQ(next, kv_heads * group);
        EXPECT_LE(most - least, 1u);
      }
    }
  }
}

// --- How results of blocks become one ------------------------------------------------------------

constexpr std::size_t kQueries = 7, kKeys = 12, kHeadDim = 3;

Block small_block(const std::vector<double>& q, const std::vector<double>& k,
                  const std::vector<double>& v) {
  return {.type = DataType::float64,
          .batch = 2,
          .heads = 4,
          .kv_heads = 2,
          .dim = kHeadDim,
          .queries = kQueries,
          .keys = kKeys,
          .q = q.data(),
          .k = k.data(),
          .v = v.data()};
}
constexpr std::size_t kQ = kQueries * 2 * 4 * kHeadDim, kK = kKeys * 2 * 2 * kHeadDim;

TEST(SequenceParts, MergedBlocksAreTheAttentionToAllTheirKeys) {
  const auto q = numbers(kQ, 1), k = numbers(kK, 2), v = numbers(kK, 3);
  for (const double size : {1.0, 300.0}) {  // exponentials would overflow without the largest
    std::vector<double> scaled = k;
    for (double& x : scaled) x *= size;
    Block block = small_block(q, scaled, v);
    const Kernel kernel = plain_kernel();
    std::vector<double> whole(kQ), whole_lse(kQ / kHeadDim), part(kQ), part_lse(kQ / kHeadDim);
    kernel.forward({.block = block, .out = whole.data(), .lse = whole_lse.data()});
    // Nothing is there at first: the lse is minus infinity, and out counts for nothing.
    std::vector<double> out(kQ, 1e9), lse(kQ / kHeadDim, -std::numeric_limits<double>::infinity());
    std::size_t first = 0;
    for (const std::size_t count : {1u, 4u, 7u}) {
      block.keys = count;
      block.k = &scaled[first * 2 * 2 * kHeadDim];
      block.v = &v[first * 2 * 2 * kHeadDim];
      kernel.forward({.block = block, .out = part.data(), .lse = part_lse.data()});
      merge(DataType::float64, kQ / kHeadDim, kHeadDim, part.data(), part_lse.data(), out.data(),
            lse.data());
      first += count;
    }
    for (std::size_t i = 0; i < kQ; ++i) EXPECT_NEAR(out[i], whole[i], 1e-14);
    for (std::size_t i = 0; i < lse.size(); ++i) EXPECT_NEAR(lse[i], whole_lse[i], 1e-13 * size);
    // A block that sees nothing changes nothing, not even if its values are no numbers.
    const std::vector<double> before = out;
    std::fill(part.begin(), part.end(), 1.0);
    std::fill(part_lse.begin(), part_lse.end(), -std::numeric_limits<double>::infinity());
    merge(DataType::float64, kQ / kHeadDim, kHeadDim, part.data(), part_lse.data(), out.data(),
          lse.data());
    EXPECT_EQ(out, before);
  }
}

// The backward of the plain kernel is the derivative of its forward.
TEST(SequenceParts, ThePlainKernelsBackwardIsTheDerivativeOfItsForward) {
  for (const bool causal : {false, true}) {
    std::vector<double> in[3] = {numbers(kQ, 1), numbers(kK, 2), numbers(kK, 3)};
    const auto dout = numbers(kQ, 4);
    const Kernel kernel = plain_kernel();
    std::vector<double> out(kQ), lse(kQ / kHeadDim), delta(kQ / kHeadDim);
    const auto loss = [&] {
      Block block = small_block(in[0], in[1], in[2]);
      block.causal = causal;
      kernel.forward({.block = block, .out = out.data(), .lse = lse.data()});
      return std::inner_product(out.begin(), out.end(), dout.begin(), 0.0);
    };
    loss();
    dot_rows(DataType::float64, delta.size(), kHeadDim, out.data(), dout.data(), delta.data());
    std::vector<double> d[3] = {std::vector<double>(kQ), std::vector<double>(kK),
                                std::vector<double>(kK)};
    Block block = small_block(in[0], in[1], in[2]);
    block.causal = causal;
    kernel.backward({.block = block,
                     .out = out.data(),
                     .lse = lse.data(),
                     .dout = dout.data(),
                     .delta = delta.data(),
                     .dq = d[0].data(),
                     .dk = d[1].data(),
                     .dv = d[2].data()});
    for (std::size_t tensor = 0; tensor < 3; ++tensor) {
      for (std::size_t i = 0; i < in[tensor].size(); ++i) {
        constexpr double kStep = 1e-5;
        const double x = in[tensor][i];
        in[tensor][i] = x + kStep;
        const double more = loss();
        in[tensor][i] = x - kStep;
        const double less = loss();
        in[tensor][i] = x;
        EXPECT_NEAR(d[tensor][i], (more - less) / (2 * kStep), 1e-9) << tensor << " " << i;
      }
    }
  }
}

TEST(SequenceParts, NarrowPartsAreAddedInFloat32) {
  const std::vector<float> values{256, 1, 0.5};
  std::vector<std::uint16_t> part(3);
  convert(values.data(), DataType::float32, part.data(), DataType::bfloat16, 3);
  std::vector<float> sum{1, 256, 0}, delta(1);
  add(DataType::bfloat16, 3, part.data(), sum.data());
  EXPECT_EQ(sum, (std::vector<float>{257, 257, 0.5}));  // bfloat16 has no 257
  dot_rows(DataType::bfloat16, 1, 3, part.data(), part.data(), delta.data());
  EXPECT_EQ(delta[0], 65537.25f);
}

}  // namespace
}  // namespace tutti::parallel::sequence
